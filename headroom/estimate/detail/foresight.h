// What runs of other sizes would ask of the card, from those that were run. A run of one program at
// two sizes asks the same in the same order, and each request's bytes grow with the size along a
// line (or, with a sequence's length, a parabola): so the requests of a size in between or beyond
// are known, and the allocator's model answers in a millisecond whether they fit. Rounding, pools
// and fragmentation are in it.
//
// Where runs did not ask the same (more chunks of a loss, another kernel), what is drawn on as a
// line is the smallest card on which each fits.
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
  // How many runs the bytes of a request are drawn through: 2 a line, 3 a parabola.
  explicit Foresight(std::size_t points) : points_(points) {}

  // A whole run, on a card that refused it nothing.
  void learn(std::int64_t size, Requests requests);

  // Nothing: fewer than two runs are known.
  [[nodiscard]] std::optional<bool> fits(std::int64_t size,
                                         const allocator::CachingAllocator& card) const;
  // Of a run on `card`, which shall have no limit.
  [[nodiscard]] std::optional<Bytes> peak_reserved(std::int64_t size,
                                                   const allocator::CachingAllocator& card) const;

 private:
  struct Known {
    std::uint64_t program = 0;  // equal for runs that ask the same but for the bytes
    Requests requests;
  };
  using Runs = std::map<std::int64_t, Known>;
  using Nearest = std::vector<Runs::const_iterator>;

  [[nodiscard]] Nearest nearest(std::int64_t size, bool of_one_program) const;
  [[nodiscard]] std::optional<Requests> requests_of(std::int64_t size) const;
  [[nodiscard]] Bytes needed(Runs::const_iterator run,
                             const allocator::CachingAllocator& card) const;
  [[nodiscard]] std::optional<Bytes> along_a_line(std::int64_t size, Bytes of_first,
                                                  Bytes of_second, const Nearest& runs) const;

  std::size_t points_;
  Runs runs_;
  mutable std::map<std::int64_t, Bytes> needed_;  // by size; found by halving once
};

}  // namespace headroom::estimate::detail
