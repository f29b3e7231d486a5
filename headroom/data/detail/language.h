// A made-up language that a model can learn: nine of ten tokens follow from the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "headroom/data/detail/order.h"
#include "headroom/data/detail/random.h"

namespace headroom::data::detail {

class Language {
 public:
  Language(std::int64_t vocabulary, std::uint64_t seed) : vocabulary_(vocabulary) {
    const Order order(vocabulary, mixed(seed, {vocabulary}));
    for (std::int64_t token = 0; token < vocabulary; ++token) follower_.push_back(order[token]);
  }

  [[nodiscard]] std::int64_t any(Dice& dice) const { return dice.below(vocabulary_); }
  [[nodiscard]] std::int64_t after(std::int64_t token, Dice& dice) const {
    return dice.below(10) == 0 ? any(dice) : follower_[static_cast<std::size_t>(token)];
  }

 private:
  std::int64_t vocabulary_;
  std::vector<std::int64_t> follower_;
};

}  // namespace headroom::data::detail
