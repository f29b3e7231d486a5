#include "headroom/data/detail/order.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace headroom::data::detail {
namespace {

std::vector<std::int64_t> whole_order(std::int64_t size, std::uint64_t seed) {
  const Order order(size, seed);
  std::vector<std::int64_t> all;
  for (std::int64_t place = 0; place < size; ++place) all.push_back(order[place]);
  return all;
}

TEST(Order, HasEachNumberOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 100, 1000, 65'537}) {
    const auto order = whole_order(size, 7);
    const std::set<std::int64_t> numbers(order.begin(), order.end());
    EXPECT_EQ(static_cast<std::int64_t>(numbers.size()), size);
    EXPECT_EQ(*numbers.begin(), 0);
    EXPECT_EQ(*numbers.rbegin(), size - 1);
  }
}

TEST(Order, IsThatOfItsSeed) {
  EXPECT_EQ(whole_order(100, 7), whole_order(100, 7));
  EXPECT_NE(whole_order(100, 7), whole_order(100, 8));
}

// With 6,000 seeds each of the 6 orders of 3 numbers comes 1,000 times on average, with a deviation
// of 29; and each number at each place of 10 comes 600 times, with a deviation of 23.
TEST(Order, TakesEachOrderEquallyOften) {
  std::map<std::vector<std::int64_t>, int> orders;
  std::map<std::pair<std::int64_t, std::int64_t>, int> places;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    ++orders[whole_order(3, seed)];
    const auto ten = whole_order(10, seed);
    for (std::int64_t place = 0; place < 10; ++place)
      ++places[{place, ten[static_cast<std::size_t>(place)]}];
  }
  ASSERT_EQ(orders.size(), 6U);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 5 * 29);
  ASSERT_EQ(places.size(), 100U);
  for (const auto& [place, count] : places) EXPECT_NEAR(count, 600, 5 * 23);
}

// Neighbours in an order are as far apart as any two numbers: a third of all on average.
TEST(Order, SeparatesNeighbours) {
  constexpr std::int64_t kSize = 10'000;
  const auto order = whole_order(kSize, 1);
  double sum = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    sum += std::abs(static_cast<double>(order[i] - order[i - 1]));
  EXPECT_NEAR(sum / kSize, kSize / 3.0, kSize / 100.0);
}

}  // namespace
}  // namespace headroom::data::detail
