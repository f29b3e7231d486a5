// Searches the fastest way to train a model on several cards: how many replicas, on which cards the
// layers of each lie, in parts of how many rows a batch runs, and which stages compute activations
// again in place of keeping them.
//
//   const Searched found = search({.cards = cards, .rows = 32, .techniques = 1}, pricer);
//   if (found.best()) say(found.best()->seconds, found.best()->stages.front().memory.reserved);
//
// A plan fits if what stays of each stage is within the budget of each of its cards, and what its
// step reserves is within what is plannable there.
//
// What is exact, and what is not:
// - No plan is refused for a figure that is not certain: Pricer::at_least refuses, and
//   Pricer::exact has the last word about every plan that is returned.
// - For given techniques, rows, replicas and stages, dynamic programming goes over all contiguous
//   splits on all choices of cards (deal.h names the exception), with checkpointing stage by stage,
//   and finds the dozen that are the fastest by a formula (placing.cpp). These are played event by
//   event, and single layers then move to a neighbouring stage while that makes the step shorter.
//   So the best split is found up to the formula's error: in 10,000 random cases within 2 % of it
//   (tests/plan/search_peers_test.cpp).
// - A combination is skipped only if a bound says that it cannot be faster than the best so far:
//   its layers on the fastest cards, divided as well as real numbers can be, without communication.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/plan/deal.h"
#include "headroom/plan/pipeline.h"
#include "headroom/plan/placement.h"
#include "headroom/plan/pricer.h"

namespace headroom::plan {

struct SearchQuestion {
  std::vector<PlanCard> cards;
  std::int64_t rows = 1;                            // of a batch: the effective one
  int techniques = 1;                               // choices, by their index: Form::techniques
  std::vector<bool> checkpointing = {false, true};  // that a stage may have
  std::optional<std::int64_t> part = {};            // rows of a part, if they are given
  std::optional<int> replicas = {}, stages = {};
  Pipeline pipeline = Pipeline::one_by_one;
  bool balance = false;  // the largest card's resident bytes are within 15 % of the mean
};

// The best of so many replicas and stages.
struct Considered {
  int replicas = 1, stages = 1;
  std::optional<Placement> best = {};
  std::optional<Refusal> refusal = {};
};

struct Searched {
  std::vector<Considered> considered;  // the fastest first; then those that do not fit
  std::int64_t looked_at = 0;          // combinations that no bound skipped

  [[nodiscard]] const Placement* best() const {
    return considered.empty() || !considered.front().best ? nullptr : &*considered.front().best;
  }
};

// Throws UsageError for a question without cards, rows, techniques or forms of a stage.
[[nodiscard]] Searched search(const SearchQuestion& question, Pricer& pricer);

// The fewest cards like this one that hold one replica, a stage each, whatever numbers the question
// names. std::nullopt if not even as many as the model has layers do.
[[nodiscard]] std::optional<int> cards_needed(const SearchQuestion& question, const PlanCard& card,
                                              Pricer& pricer);

}  // namespace headroom::plan
