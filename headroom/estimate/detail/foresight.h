// What runs of other sizes would ask of the card, from those that were run: then the allocator's
// model answers in a millisecond whether they fit, with its rounding, pools and fragmentation.
//
// - A run of one program at two sizes asks the same in the same order, and each request's bytes
//   grow with the size along a line (with a sequence's length, a parabola).
// - Where runs did not ask the same (more chunks of a loss, another kernel for more tokens), the
//   nearest run's requests are scaled: those whose bytes are found in another run as they are,
//   stay; those that are found as many times larger as the size is, grow.
// - Where that does not explain the other run, what is drawn on as a line is the smallest card on
//   which each run fits.
//
// A foresight is not an answer: what it says is tried by a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "headroom/estimate/step_run.h"

namespace headroom::estimate::detail {

class Foresight {
 public:
  explicit Foresight(const Growth& growth) : growth_(growth) {}

  // A whole run, on a card that refused it nothing.
  void learn(std::int64_t size, Requests requests);

  // Nothing: fewer than two runs are known.
  [[nodiscard]] std::optional<bool> fits(std::int64_t size,
                                         const allocator::CachingAllocator& card) const;
  // Of a run on a card without limit, with the settings of this one.
  [[nodiscard]] std::optional<Bytes> peak_reserved(std::int64_t size,
                                                   const allocator::CachingAllocator& card) const;

 private:
  struct Known {
    std::uint64_t program = 0;  // equal for runs that ask the same but for the bytes
    Requests requests;
  };
  using Runs = std::map<std::int64_t, Known>;
  using Run = Runs::const_iterator;

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
  // Found once: the smallest card for a run, and whether one run explains another.
  mutable std::map<std::int64_t, Bytes> needed_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, bool> explains_;
};

}  // namespace headroom::estimate::detail
