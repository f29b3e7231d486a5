// Finds the largest size of a step (its batch, or the length of its sequences) that fits a card,
// with at most six dry runs. fit.h uses it for a model by name, find_max_batch_size.h for any
// module.
//
//   const Largest found = find_largest({.at_least = 1}, [&](std::int64_t rows) {
//     return step_of(rows);   // MakeSubject
//   }, card);
//   found.size;   // 12: a step of 12 was run on this card and fits, one of 13 does not
//
// The search (plan/largest.h) runs a small size first, then a size near the answer, guessed from
// the memory that the first run kept alive. The requests of these two predict all other sizes
// (request_predictor.h), and each further run corrects the prediction. Most searches end with the
// fourth run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/dryrun/step_run.h"

namespace headroom::estimate {

inline constexpr int kMostProbes = 6;

struct Probe {
  std::int64_t size = 0;
  bool fits = false;
  // The peak of a run that fits; otherwise the peak of the same run on a card without a limit.
  Bytes peak_reserved;
  bool operator==(const Probe&) const = default;
};

// Memory to leave free: a share of the size, or bytes of the card.
struct Margin {
  double share = 0.1;
  std::optional<Bytes> bytes = {};  // instead of the share
};

struct Bounds {
  std::int64_t at_least = 1;
  std::optional<std::int64_t> at_most = {};
  std::int64_t first = 2;  // tried first, if within the bounds
  dryrun::Growth growth = {};
};

struct Largest {
  std::optional<std::int64_t> size;  // std::nullopt if even the smallest does not fit
  bool capped = false;               // `at_most` fits
  // True if `size + 1` was run and does not fit, or if `capped`. Otherwise the probes ran out, and
  // a larger size may fit: seen only with chunked losses, whose incomplete last chunk makes memory
  // jump.
  bool is_proven = true;
  // With a share: `size` less that share, at least 1; or `at_most` itself if it fits and leaves the
  // share of the card free. With bytes: the largest size whose peak of reserved memory leaves them
  // free, predicted from the probes' requests and run too if probes are left. std::nullopt: no such
  // size.
  std::optional<std::int64_t> recommended;
  std::vector<Probe> probes;  // in the order of the runs
};

// `size` less the share, at least 1.
[[nodiscard]] std::int64_t less_share(std::int64_t size, double share);

// Throws UsageError, naming `function`, for invalid bounds or an invalid margin.
void check(const Bounds& bounds, const Margin& margin, const char* function = "fit");

// Throws the exceptions of `check` and of the step.
[[nodiscard]] Largest find_largest(const Bounds& bounds,
                                   const std::function<dryrun::MakeSubject(std::int64_t)>& step_of,
                                   const gpu::SimulatedCard& card, const Margin& margin = {},
                                   int steps = 2, const dryrun::CardOptions& options = {});

}  // namespace headroom::estimate
