// The search for the largest batch of a script, with needs that a test makes up.
#include "headroom/cli/core/rehearsal_fit.h"

#include <gtest/gtest.h>

namespace headroom::cli {
namespace {

// A script that needs `base` and `each` for a row, on a card of `room`.
LargestBatch searched(long long first, std::int64_t base, std::int64_t each, std::int64_t room) {
  return find_largest_batch(first, Bytes{room}, [&](long long batch) {
    const Bytes needs{base + each * batch};
    return RehearsedBatch{.batch = batch, .fits = needs.count <= room, .needs = needs};
  });
}

TEST(RehearsalFit, FindsTheLargestAndProvesIt) {
  for (const long long first : {1, 8, 64, 1000})
    for (const std::int64_t room : {1'000, 12'345, 99'999}) {
      const LargestBatch found = searched(first, 500, 37, room);
      EXPECT_EQ(found.batch, (room - 500) / 37) << "from " << first << " in " << room;
      EXPECT_TRUE(found.is_proven);
      EXPECT_LE(found.rehearsed.size(), 6U);
    }
}

TEST(RehearsalFit, NotEvenOneFits) {
  const LargestBatch found = searched(8, 500, 37, 520);
  EXPECT_EQ(found.batch, std::nullopt);
  EXPECT_LE(found.rehearsed.size(), 6U);
}

// A part of the need grows faster than the batch, and in steps.
TEST(RehearsalFit, ACurveTakesAFewMore) {
  const auto needs = [](long long batch) { return 1'000 + batch * batch / 7 + batch / 4 * 100; };
  const LargestBatch found = find_largest_batch(4, Bytes{20'000}, [&](long long batch) {
    const Bytes bytes{needs(batch)};
    return RehearsedBatch{.batch = batch, .fits = bytes.count <= 20'000, .needs = bytes};
  });
  ASSERT_TRUE(found.batch);
  EXPECT_LE(needs(*found.batch), 20'000);
  EXPECT_LE(found.rehearsed.size(), 6U);
  EXPECT_TRUE(!found.is_proven || needs(*found.batch + 1) > 20'000);
}

TEST(RehearsalFit, ANeedThatDoesNotGrowEndsTheSearch) {
  const LargestBatch found = searched(4, 500, 0, 1'000);
  EXPECT_GE(found.batch.value_or(0), 64);
  EXPECT_FALSE(found.is_proven);
}

}  // namespace
}  // namespace headroom::cli
