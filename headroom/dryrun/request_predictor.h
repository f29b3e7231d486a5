// Predicts the memory requests of a run of another size from runs that were made. The allocator
// model then answers in a millisecond whether that size fits, with its rounding, pools and
// fragmentation.
//
// - Runs of one program at two sizes make the same requests in the same order, and the bytes of
//   each request grow linearly with the size (quadratically with a sequence's length).
// - If the requests differ (more chunks of a loss, another kernel for more tokens), the requests of
//   the nearest run are scaled: bytes that another run has unchanged stay, and bytes that it has
//   multiplied by the ratio of the sizes grow.
// - If that does not explain the other run, the smallest card on which each run fits is
//   interpolated.
//
// A prediction is not an answer: a run verifies it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "headroom/dryrun/step_run.h"

namespace headroom::dryrun {

class RequestPredictor {
 public:
  explicit RequestPredictor(const Growth& growth) : growth_(growth) {}

  // A complete run, on a card that refused no request.
  void learn(std::int64_t size, Requests requests);

  // The next four: std::nullopt if fewer than two runs are known, unless one is of this size.
  [[nodiscard]] std::optional<bool> fits(std::int64_t size,
                                         const allocator::CachingAllocator& card) const;
  // For a run on an unlimited card with the allocator settings of `card`.
  [[nodiscard]] std::optional<Bytes> peak_reserved(std::int64_t size,
                                                   const allocator::CachingAllocator& card) const;
  // The smallest card that serves such a run, in steps of 2 MiB; and bounds of it, which cost only
  // one replay.
  [[nodiscard]] std::optional<Bytes> needed(std::int64_t size,
                                            const allocator::CachingAllocator& card) const;
  [[nodiscard]] std::optional<CardBounds> bounds(std::int64_t size,
                                                 const allocator::CachingAllocator& card) const;

 private:
  struct Known {
    std::uint64_t program = 0;  // equal for runs whose requests differ only in bytes
    Requests requests;
  };
  using Runs = std::map<std::int64_t, Known>;
  using Run = Runs::const_iterator;

  [[nodiscard]] bool knows(std::int64_t size) const;
  [[nodiscard]] std::vector<Run> nearest(std::int64_t size) const;
  [[nodiscard]] std::optional<Requests> requests_of(std::int64_t size,
                                                    const allocator::CachingAllocator& card) const;
  [[nodiscard]] Requests drawn(std::int64_t size, std::vector<Run> runs) const;
  [[nodiscard]] bool is_of_last_chunk(std::size_t request, const std::vector<Run>& runs) const;
  [[nodiscard]] std::vector<double> factors(std::int64_t from, std::int64_t to) const;
  [[nodiscard]] Requests scaled(std::int64_t size, Run run, Run other) const;
  [[nodiscard]] bool explains(Run run, Run other, const allocator::CachingAllocator& card) const;
  [[nodiscard]] Bytes needed(Run run, const allocator::CachingAllocator& card) const;
  [[nodiscard]] Bytes along_a_line(std::int64_t size,
                                   const allocator::CachingAllocator& card) const;

  Growth growth_;
  Runs runs_;
  // Caches: the smallest card for a run, and whether one run explains another.
  mutable std::map<std::int64_t, Bytes> needed_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, bool> explains_;
};

}  // namespace headroom::dryrun
