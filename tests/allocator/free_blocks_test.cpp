#include "headroom/allocator/detail/free_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace headroom::allocator::detail {
namespace {

using Key = std::pair<std::int64_t, std::uint64_t>;

TEST(FreeBlocks, AnswerAsAnOrderedMapWould) {
  std::mt19937_64 random(7);
  FreeBlocks blocks;
  std::map<Key, std::uint32_t> reference;
  const auto random_size = [&] {
    return static_cast<std::int64_t>(1 + random() % (std::uint64_t{1} << (random() % 30))) * 512;
  };
  const auto expect_same = [&](FreeBlocks::Position at, auto expected) {
    ASSERT_EQ(static_cast<bool>(at), expected != reference.end());
    if (at) {
      EXPECT_EQ(blocks.at(at).block, expected->second);
    }
  };
  for (std::uint32_t round = 0; round < 20'000; ++round) {
    if (random() % 3 != 0 || reference.empty()) {
      const Key key{random_size(), random() % 100'000 * 512};
      if (reference.emplace(key, round).second) blocks.insert({key.first, key.second, round});
    } else {
      auto victim = reference.lower_bound({random_size(), 0});
      if (victim == reference.end()) victim = reference.begin();
      blocks.erase(FreeBlocks::Entry{victim->first.first, victim->first.second, victim->second});
      reference.erase(victim);
    }
    const std::int64_t wanted = random_size();
    expect_same(blocks.first_at_least(wanted), reference.lower_bound({wanted, 0}));
  }
}

// Few sizes, so that single bins grow long.
TEST(FreeBlocks, HoldManyOfOneSize) {
  std::mt19937_64 random(9);
  FreeBlocks blocks;
  std::map<Key, std::uint32_t> reference;
  for (std::uint32_t round = 0; round < 50'000; ++round) {
    const Key key{static_cast<std::int64_t>(40 + random() % 3) * 512, random() % 5'000 * 512};
    const auto [there, is_new] = reference.emplace(key, round);
    if (is_new) {
      blocks.insert({key.first, key.second, round});
    } else {
      blocks.erase(FreeBlocks::Entry{key.first, key.second, there->second});
      reference.erase(there);
    }
    const Key wanted{static_cast<std::int64_t>(39 + random() % 4) * 512, 0};
    const auto at = blocks.first_at_least(wanted.first);
    const auto expected = reference.lower_bound(wanted);
    ASSERT_EQ(static_cast<bool>(at), expected != reference.end());
    if (at) {
      ASSERT_EQ(blocks.at(at).block, expected->second);
    }
  }
}

TEST(FreeBlocks, CanBeWalkedBothWays) {
  std::mt19937_64 random(8);
  FreeBlocks blocks;
  std::map<Key, std::uint32_t> reference;
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    const std::uint64_t sizes = i % 2 ? 100'000 : 2;
    const Key key{static_cast<std::int64_t>(1 + random() % sizes) * 512, i * 512};
    reference.emplace(key, i);
    blocks.insert({key.first, key.second, i});
  }
  auto forward = reference.begin();
  for (auto at = blocks.first(); at; at = blocks.next(at), ++forward)
    ASSERT_EQ(blocks.at(at).block, forward->second);
  EXPECT_EQ(forward, reference.end());
  auto backward = reference.rbegin();
  for (auto at = blocks.last(); at; at = blocks.previous(at), ++backward)
    ASSERT_EQ(blocks.at(at).block, backward->second);
  EXPECT_EQ(backward, reference.rend());
}

// A trace that had used up all addresses once had one block erased in place of another.
TEST(FreeBlocks, TellBlocksOfOneSizeAndAddressApart) {
  FreeBlocks blocks;
  for (const std::uint32_t block : {5u, 3u, 4u}) blocks.insert({512, 4096, block});
  blocks.erase(FreeBlocks::Entry{512, 4096, 4});
  EXPECT_EQ(blocks.at(blocks.first()).block, 3u);
  EXPECT_EQ(blocks.at(blocks.last()).block, 5u);
}

TEST(FreeBlocks, FindNothingInAnEmptySet) {
  FreeBlocks blocks;
  EXPECT_FALSE(blocks.first());
  EXPECT_FALSE(blocks.last());
  EXPECT_FALSE(blocks.first_at_least(512));
  blocks.insert({std::int64_t{1} << 47, 0, 1});
  EXPECT_TRUE(blocks.first_at_least(512));
  blocks.erase(blocks.first());
  EXPECT_FALSE(blocks.first());
}

}  // namespace
}  // namespace headroom::allocator::detail
