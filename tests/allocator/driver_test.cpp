// The driver's side of a card: memory that is there or not, and addresses by three policies.

#include "headroom/allocator/detail/driver.h"

#include <gtest/gtest.h>

namespace headroom::allocator::detail {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::uint64_t segment(Driver& driver, std::int64_t mib) {
  return driver.take_segment(mib * kMiB).value();
}

TEST(Driver, GivesExactlyItsCapacity) {
  Driver driver(Bytes{100 * kMiB}, AddressPolicy::ascending);
  const std::uint64_t address = segment(driver, 60);
  EXPECT_FALSE(driver.take_memory(40 * kMiB + 1));
  EXPECT_TRUE(driver.take_memory(40 * kMiB));
  EXPECT_EQ(driver.free(), 0);
  driver.give_segment(address, 60 * kMiB);
  driver.give_memory(40 * kMiB);
  EXPECT_EQ(driver.free(), 100 * kMiB);
}

TEST(Driver, OtherProcessesCanHoldMoreThanIsLeft) {
  Driver driver(Bytes{100 * kMiB}, AddressPolicy::ascending);
  ASSERT_TRUE(driver.take_memory(60 * kMiB));
  driver.set_used_by_others(70 * kMiB);
  EXPECT_EQ(driver.free(), 0);
}

TEST(Driver, AscendingAndDescendingAddressesAreNotUsedAgain) {
  Driver up(kUnlimited, AddressPolicy::ascending), down(kUnlimited, AddressPolicy::descending);
  for (Driver* driver : {&up, &down}) {
    const std::uint64_t first = segment(*driver, 2);
    driver->give_segment(first, 2 * kMiB);
    const std::uint64_t second = segment(*driver, 2);
    EXPECT_EQ(second > first, driver == &up);
    EXPECT_NE(second, first);
  }
}

TEST(Driver, TheLowestGapThatIsLargeEnoughIsTaken) {
  Driver driver(kUnlimited, AddressPolicy::lowest);
  const std::uint64_t a = segment(driver, 2), b = segment(driver, 20), c = segment(driver, 2);
  driver.give_segment(a, 2 * kMiB);
  EXPECT_GT(segment(driver, 4), c);
  driver.give_segment(b, 20 * kMiB);  // joins the gap before it
  EXPECT_EQ(segment(driver, 22), a);
}

TEST(Driver, AGapBelowTheEndlessOneJoinsIt) {
  Driver driver(kUnlimited, AddressPolicy::lowest);
  const std::uint64_t a = segment(driver, 2), b = segment(driver, 2);
  driver.give_segment(b, 2 * kMiB);
  driver.give_segment(a, 2 * kMiB);
  EXPECT_EQ(segment(driver, 50), a);
}

TEST(Driver, RangesLieAboveAllSegments) {
  for (const auto policy :
       {AddressPolicy::ascending, AddressPolicy::descending, AddressPolicy::lowest}) {
    Driver driver(Bytes{100 * kMiB}, policy);
    const std::uint64_t range = driver.take_range(112 * kMiB);
    EXPECT_LT(segment(driver, 20), range);
    EXPECT_EQ(driver.take_range(112 * kMiB), range + 112 * kMiB);
    EXPECT_EQ(driver.free(), 80 * kMiB);
  }
}

}  // namespace
}  // namespace headroom::allocator::detail
