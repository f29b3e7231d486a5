// The rules of PyTorch 2.11's caching allocator, one behaviour a test, with figures worked out by
// hand from the rules. That they are PyTorch's rules is tests/oracle/'s matter.

#include "headroom/allocator/caching_allocator.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/allocator/card_with.h"

namespace headroom::allocator {
namespace {

using namespace headroom::literals;
using namespace testing;

// ---- Sizes ----

TEST(CachingAllocator, RoundsUpToMultiplesOf512) {
  CachingAllocator card;
  EXPECT_EQ(card.block(card.allocate(1_B)).size, 512_B);
  EXPECT_EQ(card.block(card.allocate(512_B)).size, 512_B);
  EXPECT_EQ(card.block(card.allocate(513_B)).size, 1024_B);
  EXPECT_EQ(card.statistics().requested_bytes.all.current, 1 + 512 + 513);
}

TEST(CachingAllocator, TakesASegmentThatFitsTheKindOfRequest) {
  const auto segment_for = [](Bytes size) {
    CachingAllocator card;
    static_cast<void>(card.allocate(size));
    return reserved(card);
  };
  EXPECT_EQ(segment_for(1_MiB), 2_MiB);
  EXPECT_EQ(segment_for(1_MiB + 1_B), 20_MiB);
  EXPECT_EQ(segment_for(10_MiB - 512_B), 20_MiB);
  EXPECT_EQ(segment_for(10_MiB - 511_B), 10_MiB);  // judged after rounding
  EXPECT_EQ(segment_for(11_MiB), 12_MiB);
}

TEST(CachingAllocator, ALargeBlockIsHandedOutWholeWhenAMiBOrLessWouldBeLeft) {
  CachingAllocator card;
  EXPECT_EQ(card.block(card.allocate(11_MiB)).size, 12_MiB);  // 1 MiB over: not split
  EXPECT_EQ(allocated(card), 12_MiB);
  EXPECT_EQ(card.statistics().requested_bytes.all.current, 11 << 20);
  CachingAllocator other;
  EXPECT_EQ(other.block(other.allocate(11_MiB - 512_B)).size, 11_MiB - 512_B);
}

TEST(CachingAllocator, RoundsToPartsOfAPowerOfTwoWhenAsked) {
  CachingAllocator card = card_with("roundup_power2_divisions:4");
  EXPECT_EQ(card.block(card.allocate(1200_KiB)).size, 1280_KiB);  // 1024, 1280, 1536, ...
  EXPECT_EQ(card.block(card.allocate(2048_B)).size, 2048_B);      // not above 4 x 512: plain
  EXPECT_EQ(card.block(card.allocate(2049_B)).size, 2560_B);
}

// ---- Choosing ----

TEST(CachingAllocator, TakesTheSmallestFreeBlockThatFits) {
  CachingAllocator card;
  const BlockId large = card.allocate(40_MiB), middle = card.allocate(30_MiB);
  static_cast<void>(card.allocate(50_MiB));
  const std::uint64_t wanted = card.block(middle).address;
  card.free(large);
  card.free(middle);
  EXPECT_EQ(card.block(card.allocate(28_MiB)).address, wanted);
}

TEST(CachingAllocator, AmongEqualSizesTheLowestAddressIsTaken) {
  CachingAllocator card;
  const BlockId first = card.allocate(30_MiB), second = card.allocate(30_MiB);
  const std::uint64_t lowest = card.block(first).address;
  card.free(second);
  card.free(first);
  EXPECT_EQ(card.block(card.allocate(30_MiB)).address, lowest);
}

TEST(CachingAllocator, MemoryOfOneStreamIsNotReusedByAnother) {
  CachingAllocator card;
  card.free(card.allocate(30_MiB, 0));
  static_cast<void>(card.allocate(30_MiB, 1));
  EXPECT_EQ(reserved(card), 60_MiB);
}

TEST(CachingAllocator, FreedNeighboursJoin) {
  CachingAllocator card;
  const BlockId a = card.allocate(5_MiB), b = card.allocate(5_MiB), c = card.allocate(5_MiB);
  card.free(a);
  card.free(c);  // joins the 5 MiB left of the segment
  EXPECT_EQ(card.statistics().inactive_split.all.current, 2);
  EXPECT_EQ(card.statistics().inactive_split_bytes.all.current, 15 << 20);
  card.free(b);
  EXPECT_EQ(card.statistics().inactive_split.all.current, 0);
  EXPECT_EQ(card.snapshot().at(0).blocks.size(), 1u);
}

// ---- Limits ----

TEST(CachingAllocator, ARefusalCarriesItsFigures) {
  CachingAllocator card = card_with("", 100_MiB);
  static_cast<void>(card.allocate(30_MiB));
  ASSERT_EQ(card.allocate(71_MiB), kNoBlock);
  const OutOfMemory& refusal = card.last_out_of_memory();
  EXPECT_EQ(refusal.requested, 71_MiB);
  EXPECT_EQ(refusal.tried, 72_MiB);
  EXPECT_EQ(refusal.free, 70_MiB);
  EXPECT_EQ(refusal.capacity, 100_MiB);
  EXPECT_EQ(refusal.allocated, 30_MiB);
  EXPECT_EQ(card.statistics().num_ooms, 1);
  EXPECT_EQ(card.statistics().num_alloc_retries, 1);
  EXPECT_TRUE(to_string(refusal).starts_with(
      "CUDA out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total capacity of 100.00 MiB "
      "of which 70.00 MiB is free. Of the allocated memory 30.00 MiB is allocated by PyTorch, and "
      "0 bytes is reserved by PyTorch but unallocated."));
}

TEST(CachingAllocator, RefusesAnExabyteWithoutChangingTheStatistics) {
  CachingAllocator card;
  ASSERT_EQ(card.allocate(kTooLarge), kNoBlock);
  EXPECT_EQ(to_string(card.last_out_of_memory()),
            "CUDA out of memory. Tried to allocate more than 1EB memory.");
  EXPECT_EQ(card.statistics(), Statistics{});
  ASSERT_EQ(card.allocate(kTooLarge - 1_B), kNoBlock);
  EXPECT_EQ(card.statistics().num_ooms, 1);
}

TEST(CachingAllocator, GivesBackWhatIsFreeBeforeItRefuses) {
  CachingAllocator card = card_with("", 100_MiB);
  card.free(card.allocate(60_MiB));
  EXPECT_NE(card.allocate(80_MiB), kNoBlock);
  EXPECT_EQ(reserved(card), 80_MiB);
  EXPECT_EQ(card.statistics().num_alloc_retries, 1);
  EXPECT_EQ(card.statistics().num_sync_all_streams, 1);
  EXPECT_EQ(card.statistics().num_device_free, 1);
}

TEST(CachingAllocator, ASegmentWithALiveBlockIsNotGivenBack) {
  CachingAllocator card = card_with("", 100_MiB);
  const BlockId front = card.allocate(30_MiB - 2_MiB), rest = card.allocate(60_MiB);
  card.free(rest);
  static_cast<void>(card.allocate(2_MiB));  // of the 60 MiB
  EXPECT_EQ(card.allocate(70_MiB), kNoBlock);
  EXPECT_EQ(reserved(card), 88_MiB);
  card.free(front);
}

TEST(CachingAllocator, AFractionLimitsTheProcessBeforeTheCardIsFull) {
  CachingAllocator card = card_with("", 100_MiB);
  card.set_memory_fraction(0.5);
  static_cast<void>(card.allocate(40_MiB));
  EXPECT_EQ(card.allocate(12_MiB), kNoBlock);
  EXPECT_EQ(card.last_out_of_memory().limit, 50_MiB);
  EXPECT_EQ(card.last_out_of_memory().free, 60_MiB);
  EXPECT_THROW(card.set_memory_fraction(1.5), UsageError);
}

TEST(CachingAllocator, MemoryOfOtherProcessesIsNotFree) {
  CachingAllocator card = card_with("", 100_MiB);
  card.set_used_by_others(50_MiB);
  EXPECT_EQ(card.allocate(60_MiB), kNoBlock);
  card.set_used_by_others(0_MiB);
  EXPECT_NE(card.allocate(60_MiB), kNoBlock);
}

// ---- Settings ----

TEST(CachingAllocator, BlocksOfMaxSplitSizeAreNotSplit) {
  CachingAllocator card = card_with("max_split_size_mb:40");
  card.free(card.allocate(60_MiB));
  static_cast<void>(card.allocate(20_MiB));  // the oversize block is not for small requests
  EXPECT_EQ(reserved(card), 80_MiB);
  static_cast<void>(card.allocate(41_MiB));  // within 20 MiB of it: takes it whole
  EXPECT_EQ(allocated(card), 80_MiB);
  EXPECT_EQ(card.statistics().oversize_allocations.current, 1);
}

TEST(CachingAllocator, WithMaxSplitSizeItReleasesOneCachedBlockBeforeAllOthers) {
  CachingAllocator card = card_with("max_split_size_mb:40", 200_MiB);
  const BlockId a = card.allocate(50_MiB), b = card.allocate(100_MiB), c = card.allocate(30_MiB);
  for (const BlockId block : {a, b, c}) card.free(block);
  static_cast<void>(card.allocate(70_MiB));  // gives up the 100 MiB, keeps 50 and 30
  EXPECT_EQ(reserved(card), 150_MiB);
  EXPECT_EQ(card.statistics().num_alloc_retries, 0);
}

TEST(CachingAllocator, GarbageCollectionFreesTheOldestFirst) {
  CachingAllocator card = card_with("garbage_collection_threshold:0.5", 200_MiB);
  card.set_memory_fraction(0.99);
  const BlockId old = card.allocate(40_MiB);
  card.free(old);  // one search later it is older than the next
  const BlockId young = card.allocate(60_MiB);
  card.free(young);
  static_cast<void>(card.allocate(80_MiB));  // 100 MiB reserved, more than half of 198
  EXPECT_EQ(reserved(card), 60_MiB + 80_MiB);
  EXPECT_EQ(card.statistics().num_alloc_retries, 0);
}

TEST(CachingAllocator, ChangedSettingsApplyFromTheNextRequest) {
  CachingAllocator card;
  static_cast<void>(card.allocate(5_MiB));
  Settings settings = card.settings();
  apply(settings, "large_segment_size_mb:40");
  card.change_settings(settings);
  static_cast<void>(card.allocate(9_MiB));
  static_cast<void>(card.allocate(9_MiB));
  EXPECT_EQ(reserved(card), 60_MiB);
}

// ---- Expandable segments ----

TEST(ExpandableSegments, GrowByWholePages) {
  CachingAllocator card = card_with("expandable_segments:True");
  static_cast<void>(card.allocate(30_MiB));
  EXPECT_EQ(reserved(card), 40_MiB);
  static_cast<void>(card.allocate(25_MiB));  // 10 MiB are free, 15 more need one page
  EXPECT_EQ(reserved(card), 60_MiB);
  EXPECT_EQ(card.snapshot().size(), 1u);
  EXPECT_EQ(card.statistics().segment.all.current, 0);
  EXPECT_EQ(card.statistics().num_device_alloc, 2);
}

TEST(ExpandableSegments, SplitABlockAtAnySize) {
  CachingAllocator card = card_with("expandable_segments:True");
  EXPECT_EQ(card.block(card.allocate(20_MiB - 512_B)).size, 20_MiB - 512_B);
  EXPECT_EQ(card.snapshot().at(0).blocks.at(1).size, 512_B);
}

TEST(ExpandableSegments, GiveBackOnlyWholePagesInsideFreeBlocks) {
  CachingAllocator card = card_with("expandable_segments:True");
  static_cast<void>(card.allocate(5_MiB));
  const BlockId middle = card.allocate(50_MiB);
  static_cast<void>(card.allocate(5_MiB));  // 60 MiB: three pages, all used
  card.free(middle);                        // from 5 to 55 MiB: one whole page inside
  card.empty_cache();
  EXPECT_EQ(reserved(card), 40_MiB);
  EXPECT_EQ(card.snapshot().size(), 2u);
  static_cast<void>(card.allocate(50_MiB));  // the hole is filled again
  EXPECT_EQ(reserved(card), 60_MiB);
  EXPECT_EQ(card.snapshot().size(), 1u);
}

TEST(ExpandableSegments, FitWhereFixedSegmentsLeaveHoles) {
  const auto fits = [](std::string_view settings) {
    CachingAllocator card = card_with(settings, 100_MiB);
    card.free(card.allocate(40_MiB));
    static_cast<void>(card.allocate(25_MiB));  // of the 40
    return card.allocate(70_MiB) != kNoBlock;
  };
  EXPECT_FALSE(fits(""));
  EXPECT_TRUE(fits("expandable_segments:True"));
}

// ---- A value ----

TEST(CachingAllocator, ACopyIsIndependentOfTheOriginal) {
  CachingAllocator card = card_with("expandable_segments:True", 1_GiB);
  const BlockId block = card.allocate(100_MiB);
  const Statistics before = card.statistics();
  CachingAllocator fork = card;
  fork.free(block);
  fork.empty_cache();
  static_cast<void>(fork.allocate(500_MiB));
  EXPECT_EQ(card.statistics(), before);
  EXPECT_EQ(card.block(block).size, 100_MiB);
  EXPECT_NE(fork.statistics(), before);
}

TEST(CachingAllocator, ACopyGivesTheSameAnswersToTheSameRequests) {
  CachingAllocator card = card_with("garbage_collection_threshold:0.6", 1_GiB);
  for (int i = 1; i < 20; ++i) card.free(card.allocate(Bytes{i * 3'000'000}));
  CachingAllocator fork = card;
  for (int i = 1; i < 20; ++i) {
    static_cast<void>(card.allocate(Bytes{i * 5'000'000}));
    static_cast<void>(fork.allocate(Bytes{i * 5'000'000}));
  }
  EXPECT_EQ(card.statistics(), fork.statistics());
  EXPECT_EQ(card.snapshot(), fork.snapshot());
}

TEST(CachingAllocator, ABlockIsFreedOnce) {
  CachingAllocator card;
  const BlockId block = card.allocate(1_MiB);
  card.free(block);
  EXPECT_THROW(card.free(block), UsageError);
  EXPECT_THROW(card.free(99), UsageError);
  EXPECT_THROW(static_cast<void>(card.allocate(0_B)), UsageError);
}

TEST(CachingAllocator, ReportsEventsInPyTorchsOrder) {
  struct Collector : Observer {
    std::vector<AllocatorEvent::Kind> kinds;
    void on(const AllocatorEvent& allocator_event) override {
      kinds.push_back(allocator_event.kind);
    }
  } collector;
  CachingAllocator card = card_with("", 50_MiB);
  card.observe(&collector);
  card.free(card.allocate(30_MiB));
  static_cast<void>(card.allocate(40_MiB));
  static_cast<void>(card.allocate(40_MiB));
  using Kind = AllocatorEvent::Kind;
  EXPECT_EQ(collector.kinds, (std::vector{Kind::segment_alloc, Kind::alloc, Kind::free_requested,
                                          Kind::free_completed, Kind::segment_free,
                                          Kind::segment_alloc, Kind::alloc, Kind::oom}));
}

TEST(CachingAllocator, RefusesAnImpossibleCapacity) {
  EXPECT_THROW(CachingAllocator({.capacity = Bytes{-1}}), UsageError);
  EXPECT_THROW(CachingAllocator({.capacity = kUnlimited + 1_B}), UsageError);
  CachingAllocator none({.capacity = 0_B});
  EXPECT_EQ(none.allocate(1_B), kNoBlock);
}

TEST(CachingAllocator, ResetsPeaksToCurrentUsage) {
  CachingAllocator card;
  card.free(card.allocate(30_MiB));
  card.reset_peaks();
  EXPECT_EQ(card.statistics().allocated_bytes.all.peak, 0);
  EXPECT_EQ(card.statistics().reserved_bytes.all.peak, 30 << 20);
}

}  // namespace
}  // namespace headroom::allocator
