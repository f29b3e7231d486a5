// The largest size of a step - its batch, or the length of its sequences - that fits a card, found
// with at most six dry runs. fit.h asks this for a model by name, find_max_batch_size.h for any
// module.
//
//   const Largest found = find_largest({.at_least = 1}, [&](std::int64_t rows) {
//     return step_of(rows);   // MakeSubject
//   }, card);
//   found.size;   // 12: a step of 12 was run on this card and fits, one of 13 does not
//
// Which sizes are run: a small one; one near the answer, from what the first kept alive; then what
// the requests of those two, drawn on as lines, say of all others (detail/foresight.h). What each
// further run shows corrects it. Most searches end with the fourth run.
//
// Fitting is not quite monotonic: a larger step may leave the allocator fewer gaps. The answer is a
// size that fits while the next one does not. Where the requests say that one of the next sixteen
// fits again, the largest of these is tried with the probes that are left.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/estimate/step_run.h"

namespace headroom::estimate {

inline constexpr int kMostProbes = 6;

struct Probe {
  std::int64_t size = 0;
  bool fits = false;
  // Of the run that fits; else what would have been reserved on a card without limit.
  Bytes peak_reserved;
  bool operator==(const Probe&) const = default;
};

// What is left free: a share of the size, or bytes of the card.
struct Margin {
  double share = 0.1;
  std::optional<Bytes> bytes = {};  // instead of the share
};

struct Bounds {
  std::int64_t at_least = 1;
  std::optional<std::int64_t> at_most = {};
  std::int64_t first = 2;  // is tried first, unless the others forbid it
  Growth growth = {};
};

struct Largest {
  std::optional<std::int64_t> size;  // nothing: not even the smallest fits
  bool capped = false;               // `at_most` fits
  // `size + 1` was run and does not fit, or `capped`. Otherwise the probes ended before, and there
  // may be a larger one: met only with losses by chunks, whose last chunk's size makes it jump.
  bool is_proven = true;
  // With a share: that much less than `size`, at least 1; but `at_most` itself if that fits and
  // leaves the share of the card free. With bytes: the largest whose peak of
  // reserved bytes leaves them free, as far as the probes' requests tell; it is run as well while
  // there are probes left. Nothing: there is none.
  std::optional<std::int64_t> recommended;
  std::vector<Probe> probes;  // in the order of the runs
};

// So much less of a size, and at least 1.
[[nodiscard]] std::int64_t less_share(std::int64_t size, double share);

// Throws UsageError, in this function's name, for bounds or a margin that make no sense.
void check(const Bounds& bounds, const Margin& margin, const char* function = "fit");

// Throws as `check`, and what a step throws.
[[nodiscard]] Largest find_largest(const Bounds& bounds,
                                   const std::function<MakeSubject(std::int64_t)>& step_of,
                                   const gpu::SimulatedCard& card, const Margin& margin = {},
                                   int steps = 2, const dryrun::CardOptions& options = {});

}  // namespace headroom::estimate
