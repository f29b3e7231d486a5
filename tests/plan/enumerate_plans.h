// Lists every plan of a small space, to judge search() (headroom/plan/search.h). It shares only the
// prices with the search: it has its own deals of cards, its own test of what fits, and its own
// clock of a step. It asks Pricer::exact for all memory, and never Pricer::at_least.
//
//   const Enumerated all = enumerate_plans(question, pricer);
//   all.best;  // the fastest of the all.fitting plans that fit; none fits if it is empty
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "headroom/plan/search.h"

namespace headroom::plan {

// The plans of so many replicas and stages.
struct EnumeratedShape {
  std::optional<double> fastest = {};  // seconds, of those that fit
  // The least that a plan's fullest() is: above 1 if all plans are beyond the memory of a card.
  std::optional<double> fullest = {};
};

struct Enumerated {
  std::int64_t plans = 0, fitting = 0;
  std::optional<Placement> best = {};
  std::map<std::pair<int, int>, EnumeratedShape> shapes = {};  // by replicas and stages
};

// Whether the order of the replicas matters: which card of a stage gives its tensors to which card
// of the next one. It does not if a hand-over takes as long between all cards.
enum class Replicas { in_any_order, in_each_order };

[[nodiscard]] Enumerated enumerate_plans(const SearchQuestion& question, Pricer& pricer,
                                         Replicas order = Replicas::in_any_order);

// How many plans that lists.
[[nodiscard]] std::int64_t count_plans(const SearchQuestion& question, std::int64_t layers,
                                       Replicas order = Replicas::in_any_order);

// What a plan's fullest card needs, as a share of what it has.
[[nodiscard]] double fullest(const SearchQuestion& question, const Placement& plan);
// Whether it fits, by the memory in its stages; the seconds of its step.
[[nodiscard]] bool fits(const SearchQuestion& question, const Placement& plan);
[[nodiscard]] double seconds_of(const SearchQuestion& question, const Placement& plan,
                                Pricer& pricer);

}  // namespace headroom::plan
