// Finds the largest size (a batch, a sequence) that fits, by few trials, each of which takes long:
// a dry run, a rehearsal. The results of the trials predict the other sizes.
//
//   Needs needs;
//   const LargestSize found = find_largest({.at_most = 512}, {
//       .fits = [&](std::int64_t size) { needs[size] = run(size); return needs[size] <= room; },
//       .foresee = [&](std::int64_t size) -> std::optional<bool> { ... line_near(needs, room) ... },
//       .guess = [&] { return 2 * needs.rbegin()->first; }});
//   found.size;   // 12: 12 was tried and fits, 13 was tried and does not
//
// Fitting is not quite monotonic: a larger step may leave the allocator fewer gaps. The answer is a
// size that fits while the next one does not. If one of the next sixteen sizes is foreseen to fit
// again, the search tries the largest of these with the remaining trials.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "headroom/base/bytes.h"

namespace headroom::plan {

struct SizeBounds {
  std::int64_t at_least = 1;
  std::optional<std::int64_t> at_most = {};
  std::int64_t first = 2;  // tried first, if within the bounds
  int most_trials = 6;
};

struct SizeTrials {
  std::function<bool(std::int64_t)> fits;  // tries a size
  // Whether an untried size would fit; std::nullopt if too little is known.
  std::function<std::optional<bool>(std::int64_t)> foresee;
  std::function<std::int64_t()> guess;  // the size to try while nothing is foreseen
};

struct LargestSize {
  std::optional<std::int64_t> size = {};  // std::nullopt: even the smallest does not fit
  bool capped = false;                    // `at_most` fits
  // `size + 1` was tried and does not fit, or `capped`. Otherwise the trials ran out, and a larger
  // size may fit.
  bool is_proven = true;
};

[[nodiscard]] LargestSize find_largest(const SizeBounds& bounds, const SizeTrials& trials);

// ---- Needs that grow along a straight line ----

using Needs = std::map<std::int64_t, Bytes>;  // of the sizes that were measured

struct Line {
  double fixed = 0, per_size = 0;  // bytes

  [[nodiscard]] Bytes at(std::int64_t size) const;
  // The size whose need is this much.
  [[nodiscard]] double size_at(Bytes need) const;
};
// Through two measured sizes. std::nullopt if it falls, or with fewer than two: through the two
// smallest, and through those whose needs are nearest to `room`.
[[nodiscard]] std::optional<Line> line_of_smallest(const Needs& needs);
[[nodiscard]] std::optional<Line> line_near(const Needs& needs, Bytes room);

}  // namespace headroom::plan
