// Random sizes of requests: spread over all powers of two, a few equal ones, or around the numbers
// at which the allocator's rules change.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/oracle/dice.h"

namespace headroom::oracle {

class Sizes {
 public:
  explicit Sizes(Dice& dice) : dice_(dice), kind_(dice.pick(kKinds)) {
    for (std::int64_t n = dice.between(1, 5); n > 0; --n) few_.push_back(of(dice.pick(kSpread)));
  }

  // From 1 byte to 30 GiB, seldom to 128 GiB; now and then, of another kind than the rest.
  std::int64_t next() { return of(dice_.one_in(8) ? dice_.pick(kKinds) : kind_); }

 private:
  enum class Kind { all, small, medium, large, few, thresholds };
  static inline const std::vector<Kind> kKinds = {Kind::all,   Kind::small, Kind::medium,
                                                  Kind::large, Kind::few,   Kind::thresholds};
  static inline const std::vector<Kind> kSpread = {Kind::all, Kind::small, Kind::medium,
                                                   Kind::thresholds};

  std::int64_t of(Kind kind) {
    constexpr std::int64_t kMiB = 1 << 20;
    switch (kind) {
      case Kind::all:
        return dice_.log_between(1, 30 * 1024 * kMiB);
      case Kind::small:
        return dice_.log_between(1, 3 * kMiB / 2);
      case Kind::medium:
        return dice_.log_between(kMiB / 2, 64 * kMiB);
      case Kind::large:
        return dice_.log_between(8 * kMiB, 1024 * kMiB);
      case Kind::few:
        return few_[dice_.below(few_.size())];
      case Kind::thresholds:
        return threshold();
    }
    return 1;
  }

  // A number of the rules, or a little beside it.
  std::int64_t threshold() {
    constexpr std::int64_t kMiB = 1 << 20;
    std::int64_t at = dice_.pick({std::int64_t{512}, std::int64_t{1024}, kMiB, 2 * kMiB, 9 * kMiB,
                                  10 * kMiB, 11 * kMiB, 12 * kMiB, 19 * kMiB, 20 * kMiB, 21 * kMiB,
                                  32 * kMiB, 40 * kMiB, 64 * kMiB, 200 * kMiB});
    if (dice_.one_in(4)) at = std::int64_t{1} << dice_.between(9, 37);
    if (dice_.one_in(4)) at = dice_.between(1, 256) * kMiB;
    const std::int64_t beside = dice_.pick({0, 0, 1, 511, 512, 513, 1024});
    const std::int64_t size = dice_.one_in(2) ? at + beside : at - beside;
    return size < 1 ? 1 : size;
  }

  Dice& dice_;
  Kind kind_;
  std::vector<std::int64_t> few_;
};

}  // namespace headroom::oracle
