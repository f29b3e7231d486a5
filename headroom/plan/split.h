// The best ways to cut the layers of a model into stages and to give each a group of cards, by
// dynamic programming over contiguous splits, from the last stage to the first. What a stage needs,
// and what a split is worth, is up to the caller.
//
//   const auto found = best_splits({.layers = 32}, deal, allows, worth);
//   found.front();   // the stages, from the first layer to the last
//
// The stages from one on have a worth of several figures; lower is better in each, and stages
// before them can only make each higher. So of two choices one is dropped that is beaten in all
// figures, and the others are kept: two dozen of them at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "headroom/plan/deal.h"

namespace headroom::plan {

struct Piece {
  std::int64_t first = 0, count = 0;  // layers
  bool checkpointed = false;
  std::size_t group = 0;  // of the deal
};
using Split = std::vector<Piece>;  // by position

// Of the stages from one on. `value` decides; for a time it is that of a step, and `trip` that of
// one part forward and back.
struct Worth {
  double value = 0, trip = 0;
  double forward = 0, backward = 0;  // the longest passes, where the value depends on them
};

struct SplitQuestion {
  std::int64_t layers = 1;
  std::vector<bool> checkpointing = {false};               // that a stage may have
  double limit = std::numeric_limits<double>::infinity();  // of the value; lower ones are wanted
};

// Whether a stage can be so; if not, none with more layers can.
using Allows = std::function<bool(int position, const Piece& piece)>;
// With this stage before `next`, of which the stages from it on have the worth `after`; null for
// the last one.
using WorthOf =
    std::function<Worth(int position, const Piece& piece, const Piece* next, const Worth& after)>;

// A dozen at most, the best first.
[[nodiscard]] std::vector<Split> best_splits(const SplitQuestion& question, const Deal& deal,
                                             const Allows& allows, const WorthOf& worth);

}  // namespace headroom::plan
