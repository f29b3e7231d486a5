// Blocks that the allocator keeps apart: blocks that another stream still uses, and private pools.

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/allocator/card_with.h"

namespace headroom::allocator {
namespace {

using namespace headroom::literals;
using namespace testing;

// ---- Other streams ----

TEST(OtherStreams, KeepAFreedBlockActiveUntilTheNextRequest) {
  CachingAllocator card;
  const BlockId block = card.allocate(30_MiB);
  card.record_stream(block, 1);
  card.free(block);
  EXPECT_EQ(allocated(card), 0_MiB);
  EXPECT_EQ(active(card), 30_MiB);
  static_cast<void>(card.allocate(30_MiB));
  EXPECT_EQ(reserved(card), 30_MiB);
}

TEST(OtherStreams, KeepItUntilTheirWorkIsDone) {
  CachingAllocator card({.events = EventRule::when_told});
  const BlockId block = card.allocate(30_MiB);
  card.record_stream(block, 1);
  card.record_stream(block, 2);
  card.free(block);
  card.complete_events(1);
  static_cast<void>(card.allocate(1_MiB));
  EXPECT_EQ(active(card), 31_MiB);
  card.complete_events();
  static_cast<void>(card.allocate(30_MiB));
  EXPECT_EQ(reserved(card), 32_MiB);
}

TEST(OtherStreams, AreWaitedForBeforeARefusal) {
  CachingAllocator card({.capacity = 50_MiB, .events = EventRule::when_told});
  const BlockId block = card.allocate(30_MiB);
  card.record_stream(block, 1);
  card.free(block);
  EXPECT_NE(card.allocate(40_MiB), kNoBlock);
}

TEST(OtherStreams, MayHaveAnyNumber) {
  CachingAllocator card;
  const StreamId last = ~StreamId{0};
  const BlockId block = card.allocate(30_MiB, last);
  card.record_stream(block, last - 1);
  card.free(block);
  static_cast<void>(card.allocate(30_MiB, last));
  EXPECT_EQ(reserved(card), 30_MiB);
}

TEST(OtherStreams, MayNumberMoreThan65535) {
  CachingAllocator card({.events = EventRule::when_told});
  const BlockId block = card.allocate(30_MiB);
  for (StreamId stream = 1; stream <= 65'537; ++stream) card.record_stream(block, stream);
  card.free(block);
  card.complete_events(1);
  static_cast<void>(card.allocate(1_MiB));
  EXPECT_EQ(active(card), 31_MiB);  // 65,536 are left
  card.complete_events();
  static_cast<void>(card.allocate(30_MiB));
  EXPECT_EQ(reserved(card), 32_MiB);
}

// ---- Private pools ----

TEST(PrivatePools, KeepTheirMemoryApartUntilReleased) {
  CachingAllocator card;
  card.begin_pool(1);
  const BlockId block = card.allocate(30_MiB);
  card.end_pool(1);
  card.free(block);
  static_cast<void>(card.allocate(30_MiB));
  EXPECT_EQ(reserved(card), 60_MiB);
  card.empty_cache();
  EXPECT_EQ(reserved(card), 60_MiB);
  card.release_pool(1);
  card.empty_cache();
  EXPECT_EQ(reserved(card), 30_MiB);
}

TEST(PrivatePools, GiveNothingBackWhileOneIsOpen) {
  CachingAllocator card = card_with("", 100_MiB);
  card.free(card.allocate(60_MiB));
  card.begin_pool(1);
  EXPECT_EQ(card.allocate(60_MiB), kNoBlock);
  EXPECT_EQ(card.statistics().num_ooms, 1);
  EXPECT_EQ(card.statistics().num_alloc_retries, 0);
}

TEST(PrivatePools, RefuseWrongCalls) {
  CachingAllocator card;
  EXPECT_THROW(card.end_pool(1), UsageError);
  EXPECT_THROW(card.release_pool(1), UsageError);
  card.begin_pool(1);
  EXPECT_THROW(card.begin_pool(1), UsageError);
  EXPECT_THROW(card.begin_pool(0), UsageError);
}

TEST(PrivatePools, CanBeDestroyedWhileStillOpen) {
  CachingAllocator card;
  card.begin_pool(1);
  card.release_pool(1);
  card.empty_cache();
  EXPECT_THROW(static_cast<void>(card.allocate(1_MiB)), UsageError);
  card.end_pool(1);
  EXPECT_NE(card.allocate(1_MiB), kNoBlock);
}

}  // namespace
}  // namespace headroom::allocator
