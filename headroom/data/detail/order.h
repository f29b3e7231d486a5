// The numbers 0 to size - 1 in an order that looks random. It needs no memory: each place is
// computed when it is asked for, so a set of any size is shuffled at once, and read from any place.
//
//   const Order order(set.size(), seed);
//   set.example(order[place]);
#pragma once

#include <cstdint>

namespace headroom::data::detail {

class Order {
 public:
  // Another seed, another order.
  Order(std::int64_t size, std::uint64_t seed);

  [[nodiscard]] std::int64_t operator[](std::int64_t place) const;

 private:
  [[nodiscard]] std::uint64_t exchanged(std::uint64_t place) const;

  std::uint64_t size_, seed_;
  int half_bits_ = 1;
};

}  // namespace headroom::data::detail
