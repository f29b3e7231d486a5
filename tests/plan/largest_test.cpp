// The search for the largest size that fits, with needs that a test makes up.
#include "headroom/plan/largest.h"

#include <gtest/gtest.h>

namespace headroom::plan {
namespace {

struct Answer {
  LargestSize found;
  std::size_t trials = 0;
};

Answer largest_of(std::int64_t first, const std::function<std::int64_t(std::int64_t)>& need,
                  std::int64_t room, std::optional<std::int64_t> at_most = 1 << 24) {
  Needs needs;
  std::int64_t last = 0;
  const LargestSize found =
      find_largest({.at_most = at_most, .first = first},
                   {.fits =
                        [&](std::int64_t size) {
                          last = size;
                          needs[size] = Bytes{need(size)};
                          return need(size) <= room;
                        },
                    .foresee = [&](std::int64_t size) -> std::optional<bool> {
                      const auto line = line_near(needs, Bytes{room});
                      if (!line) return {};
                      return line->at(size) <= Bytes{room};
                    },
                    .guess = [&] { return need(last) <= room ? last * 2 : last / 2; }});
  return {found, needs.size()};
}

TEST(Largest, FindsItAndProvesIt) {
  for (const std::int64_t first : {1, 8, 64, 1000})
    for (const std::int64_t room : {1'000, 12'345, 99'999}) {
      const auto need = [](std::int64_t size) { return 500 + 37 * size; };
      const auto [found, trials] = largest_of(first, need, room);
      EXPECT_EQ(found.size, (room - 500) / 37) << "from " << first << " in " << room;
      EXPECT_TRUE(found.is_proven);
      EXPECT_FALSE(found.capped);
      EXPECT_LE(trials, 6U);
    }
}

TEST(Largest, NotEvenOneFits) {
  const auto [found, trials] = largest_of(
      8, [](auto size) { return 500 + 37 * size; }, 520);
  EXPECT_EQ(found.size, std::nullopt);
  EXPECT_TRUE(found.is_proven);
  EXPECT_LE(trials, 6U);
}

// A part of the need grows faster than the size, and in steps.
TEST(Largest, ACurveTakesAFewMore) {
  const auto need = [](std::int64_t size) { return 1'000 + size * size / 7 + size / 4 * 100; };
  const auto [found, trials] = largest_of(4, need, 20'000);
  ASSERT_TRUE(found.size);
  EXPECT_LE(need(*found.size), 20'000);
  EXPECT_LE(trials, 6U);
  EXPECT_TRUE(!found.is_proven || need(*found.size + 1) > 20'000);
}

TEST(Largest, ANeedThatDoesNotGrowEndsTheSearch) {
  const auto [found, trials] = largest_of(
      4, [](auto) { return 500; }, 1'000);
  EXPECT_GE(found.size.value_or(0), 64);
  EXPECT_FALSE(found.is_proven);
  EXPECT_LE(trials, 6U);
}

TEST(Largest, IsCapped) {
  const auto [found, trials] = largest_of(
      4, [](auto size) { return size; }, 1'000, 8);
  EXPECT_EQ(found.size, 8);
  EXPECT_TRUE(found.capped);
  EXPECT_TRUE(found.is_proven);
}

// 12 fits, 13 does not, and 14 to 20 do again.
TEST(Largest, LooksBeyondABoundary) {
  const LargestSize found = find_largest(
      {.first = 12}, {.fits = [](std::int64_t size) { return size != 13 && size <= 20; },
                      .foresee = [](std::int64_t size) { return size != 13 && size <= 20; },
                      .guess = [] { return 0; }});
  EXPECT_EQ(found.size, 20);
}

TEST(Lines, PassThroughTheSmallestOrTheNearest) {
  const Needs needs{{1, Bytes{100}}, {2, Bytes{110}}, {8, Bytes{290}}};
  EXPECT_EQ(line_of_smallest(needs)->at(3), Bytes{120});
  EXPECT_EQ(line_near(needs, Bytes{300})->at(10), Bytes{350});
  EXPECT_DOUBLE_EQ(line_near(needs, Bytes{300})->size_at(Bytes{320}), 9);
  EXPECT_FALSE(line_of_smallest({{1, Bytes{100}}, {2, Bytes{90}}}));
  EXPECT_FALSE(line_of_smallest({{1, Bytes{100}}}));
}

}  // namespace
}  // namespace headroom::plan
