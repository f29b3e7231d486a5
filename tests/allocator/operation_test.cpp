#include "headroom/allocator/operation.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom::allocator {
namespace {

using Kind = Operation::Kind;

Operation allocate(std::uint32_t id, std::int64_t bytes, StreamId stream = 0) {
  return {.bytes = bytes, .id = id, .stream = stream, .kind = Kind::allocate};
}
Operation free_of(std::uint32_t id) {
  return {.id = id, .kind = Kind::free};
}

constexpr std::int64_t kMiB = 1 << 20;

TEST(Player, KeepsWhichIdHasWhichBlock) {
  Player player{CachingAllocator()};
  EXPECT_TRUE(player.play(allocate(3, 30 * kMiB)));
  EXPECT_EQ(player.card().block(player.block_of(3)).size, Bytes{30 * kMiB});
  player.play(free_of(3));
  EXPECT_EQ(player.block_of(3), kNoBlock);
  EXPECT_TRUE(player.play(allocate(3, kMiB)));
}

TEST(Player, SkipsARefusedAllocation) {
  Player player{CachingAllocator({.capacity = Bytes{10 * kMiB}})};
  EXPECT_FALSE(player.play(allocate(0, 20 * kMiB)));
  EXPECT_TRUE(player.play(free_of(0)));
  EXPECT_TRUE(player.play({.id = 0, .stream = 1, .kind = Kind::record_stream}));
  EXPECT_EQ(player.card().statistics().num_ooms, 1);
}

TEST(Player, AllocatesNothingForZeroBytes) {
  Player player{CachingAllocator()};
  EXPECT_TRUE(player.play(allocate(0, 0)));
  EXPECT_EQ(player.card().statistics(), Statistics{});
  EXPECT_TRUE(player.play(free_of(0)));
}

TEST(Player, AnIdIsAllocatedOnceAtATime) {
  Player player{CachingAllocator()};
  player.play(allocate(0, 512));
  EXPECT_THROW(player.play(allocate(0, 512)), UsageError);
}

TEST(Player, PlaysEveryKindOfOperation) {
  Player player{CachingAllocator({.events = EventRule::when_told}), {"large_segment_size_mb:40"}};
  const Operation operations[] = {
      {.bytes = 7, .kind = Kind::begin_pool},
      allocate(0, 5 * kMiB),
      {.bytes = 7, .kind = Kind::end_pool},
      free_of(0),
      {.bytes = 7, .kind = Kind::release_pool},
      {.kind = Kind::empty_cache},  // the pool's segment goes
      {.id = 0, .kind = Kind::change_settings},
      allocate(1, 5 * kMiB),  // 40 MiB
      {.id = 1, .stream = 2, .kind = Kind::record_stream},
      free_of(1),
      {.stream = 2, .kind = Kind::complete_events},
      allocate(2, 5 * kMiB),  // the 40 MiB again
      free_of(2),
      {.kind = Kind::nothing},
      {.kind = Kind::reset_peaks},
  };
  EXPECT_EQ(player.play(operations), 0u);
  const Statistics& statistics = player.card().statistics();
  EXPECT_EQ(statistics.reserved_bytes.all.current, 40 * kMiB);
  EXPECT_EQ(statistics.num_device_alloc, 2);
  EXPECT_EQ(statistics.active_bytes.all.peak, 0);
}

}  // namespace
}  // namespace headroom::allocator
