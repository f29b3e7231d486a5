#include "headroom/data/detail/order.h"

#include "headroom/data/detail/random.h"

namespace headroom::data::detail {

Order::Order(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)), seed_(scrambled(seed)) {
  while (half_bits_ < 31 && (std::uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
}

// A Feistel network maps the numbers of 2 * half_bits_ bits one to one: each round can be undone,
// whatever its function is.
std::uint64_t Order::exchanged(std::uint64_t place) const {
  constexpr int kRounds = 8;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = place >> half_bits_, right = place & mask;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t key = scrambled(seed_ + static_cast<std::uint64_t>(round)),
                        turned = left ^ (scrambled(key ^ right) & mask);
    left = right;
    right = turned;
  }
  return left << half_bits_ | right;
}

// The network covers up to four times the numbers wanted. From a place, following it until it leads
// to a wanted number is one to one, too.
std::int64_t Order::operator[](std::int64_t place) const {
  auto at = static_cast<std::uint64_t>(place);
  do {
    at = exchanged(at);
  } while (at >= size_);
  return static_cast<std::int64_t>(at);
}

}  // namespace headroom::data::detail
