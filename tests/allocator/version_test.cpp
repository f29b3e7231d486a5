// What differs between the allocators of PyTorch's versions, one rule a test. That these are
// PyTorch's rules is tests/oracle/'s matter, which runs each version's own allocator.
#include "headroom/allocator/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/error.h"
#include "tests/allocator/card_with.h"

namespace headroom::allocator {
namespace {

using namespace headroom::literals;
using namespace testing;
using ::testing::EndsWith;
using ::testing::HasSubstr;

CachingAllocator card_of(std::string_view torch, std::string_view settings = "",
                         Bytes capacity = kUnlimited,
                         AddressPolicy addresses = AddressPolicy::ascending) {
  const Version& version = version_named(torch);
  return CachingAllocator({.capacity = capacity,
                           .settings = parse_settings(settings, version),
                           .addresses = addresses,
                           .version = version});
}

std::string refusal_of(CachingAllocator card, Bytes size) {
  EXPECT_EQ(card.allocate(size), kNoBlock);
  return to_string(card.last_out_of_memory());
}

TEST(Version, IsNamedWholeOrByItsMinor) {
  EXPECT_EQ(version_named("2.15").minor, 15);
  EXPECT_EQ(version_named("2.15.0+cu132").minor, 15);
  EXPECT_EQ(versions().front().torch, "2.11");
  for (const char* unknown : {"2.10", "2.1", "2.110", "3", "", "2.16.0"})
    EXPECT_THROW(static_cast<void>(version_named(unknown)), UsageError) << unknown;
}

TEST(Version, DecidesWhichOptionsThereAre) {
  for (const Version& version : versions()) {
    const auto accepts = [&](std::string_view text) {
      try {
        static_cast<void>(parse_settings(text, version));
        return true;
      } catch (const UsageError&) {
        return false;
      }
    };
    EXPECT_EQ(accepts("throw_on_cudamalloc_oom:True"), version.minor >= 12);
    EXPECT_EQ(accepts("pinned_max_cached_size_mb:64"), version.minor >= 13);
    EXPECT_EQ(accepts("expandable_segments_reserve:4G"), version.minor >= 15);
  }
}

// 0.69 of 1,100 x 2 MiB is 759 x 2 MiB, in floating point a bit less.
TEST(Version, DecidesHowTheSharesBytesAreRounded) {
  const Bytes segment{2 << 20};
  for (const Version& version : versions()) {
    CachingAllocator card =
        card_of(version.torch, "per_process_memory_fraction:0.69", segment * 1100);
    EXPECT_EQ(card.allocate(segment * 759) != kNoBlock, version.minor >= 13) << version.torch;
  }
}

// Two free blocks of 256 MiB; the driver gives descending addresses, so the older is the higher.
TEST(Version, DecidesBetweenFreeBlocksOfEqualSize) {
  for (const Version& version : versions()) {
    CachingAllocator card = card_of(version.torch, "", kUnlimited, AddressPolicy::descending);
    const BlockId older = card.allocate(256_MiB), newer = card.allocate(256_MiB);
    const std::uint64_t first = card.block(older).address, second = card.block(newer).address;
    card.free(newer);
    card.free(older);
    const std::uint64_t taken = card.block(card.allocate(256_MiB)).address;
    EXPECT_EQ(taken, version.minor == 11 ? second : first) << version.torch;
  }
}

// 512 bytes are free at 0, a new front part, and at 1024, the rest of the first block of all.
TEST(Version, TakesTheOldestBlockIn212) {
  for (const Version& version : versions()) {
    CachingAllocator card = card_of(version.torch);
    const BlockId whole = card.allocate(1536_B);
    const std::uint64_t start = card.block(whole).address;
    const BlockId after = card.allocate(1_MiB);
    card.free(whole);
    const BlockId front = card.allocate(512_B), middle = card.allocate(512_B);
    card.free(front);
    const std::uint64_t taken = card.block(card.allocate(512_B)).address;
    EXPECT_EQ(taken - start, version.minor == 12 ? 1024U : 0U) << version.torch;
    card.free(middle);
    card.free(after);
  }
}

// Since 2.13 only a graph capture keeps the blocks that other streams used, and not every pool.
TEST(Version, DecidesWhetherAnOpenPoolDelaysFrees) {
  for (const Version& version : versions()) {
    CachingAllocator card = card_of(version.torch);
    const BlockId block = card.allocate(20_MiB);
    card.record_stream(block, 1);
    card.begin_pool(1);
    card.free(block);
    static_cast<void>(card.allocate(1_KiB));
    EXPECT_EQ(active(card), version.minor < 13 ? 20_MiB + 1_KiB : 1_KiB) << version.torch;
  }
}

TEST(Version, DecidesHowARefusalEndsWithExpandableSegments) {
  const auto text = [](const char* torch) {
    return refusal_of(card_of(torch, "expandable_segments:True", 100_MiB), 200_MiB);
  };
  EXPECT_THAT(text("2.13"), HasSubstr("expandable_segments:True to avoid fragmentation"));
  EXPECT_THAT(text("2.14"), EndsWith("is reserved by PyTorch but unallocated."));
  EXPECT_THAT(text("2.15"), EndsWith("expandable_segments_reserve_by_class."));
}

TEST(Version, RejectsBeforehandWithThrowOnCudaMallocOom) {
  CachingAllocator card = card_of("2.12", "throw_on_cudamalloc_oom:True", 1_GiB);
  card.free(card.allocate(600_MiB));
  EXPECT_EQ(card.allocate(700_MiB), kNoBlock) << "although the cached 600 MiB could go";
  EXPECT_EQ(card.statistics().num_oom_rejections, 1);
  EXPECT_EQ(card.statistics().num_ooms, 0);
  EXPECT_THAT(
      to_string(card.last_out_of_memory()),
      EndsWith("would exceed per_process_memory_fraction limit. Requested size: 700.00 MiB"));
}

TEST(Version, LimitsAnExpandableSegmentToItsReserve) {
  CachingAllocator card =
      card_of("2.15", "expandable_segments:True,expandable_segments_reserve:0.5", 1_GiB);
  static_cast<void>(card.allocate(300_MiB));
  static_cast<void>(card.allocate(300_MiB));
  EXPECT_EQ(card.snapshot().size(), 2U) << "512 MiB of addresses hold one of them";
  EXPECT_THAT(refusal_of(card, 600_MiB), HasSubstr("exceeds the expandable-segment reserve of "
                                                   "512.00 MiB for this stream"));
}

}  // namespace
}  // namespace headroom::allocator
