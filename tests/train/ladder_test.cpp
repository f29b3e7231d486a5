#include "headroom/train/ladder.h"

#include <gmock/gmock.h>

#include "headroom/base/error.h"

namespace headroom::train {
namespace {

using testing::ElementsAre;

// The micro-batches of all attempts of a step that never fits.
std::vector<std::int64_t> attempts(Ladder& ladder, Plan plan, std::int64_t rows) {
  std::vector<std::int64_t> all;
  while (const auto move = ladder.next(plan, rows)) {
    plan = move->plan;
    all.push_back(plan.micro_batch);
  }
  ladder.end_step();
  return all;
}

TEST(Ladder, TriesEachPlanTwiceAndTheSmallestLast) {
  Ladder ladder({.min_micro_batch = 2});
  EXPECT_THAT(attempts(ladder, {}, 32), ElementsAre(0, 16, 16, 8, 8, 2, 2));
}

TEST(Ladder, NeverGoesBelowTheLeastMicroBatch) {
  Ladder ladder({.min_micro_batch = 4, .max_retries = 10});
  EXPECT_THAT(attempts(ladder, {.micro_batch = 9}, 32), ElementsAre(9, 4, 4));
  EXPECT_THAT(attempts(ladder, {}, 3), ElementsAre(0));
}

TEST(Ladder, BeginsAnewWithTheNextStep) {
  Ladder ladder({.max_retries = 1});
  EXPECT_THAT(attempts(ladder, {}, 8), ElementsAre(0, 1, 1));
  EXPECT_THAT(attempts(ladder, {}, 8), ElementsAre(0, 1, 1));
}

TEST(Ladder, RefusesNumbersThatMakeNoSense) {
  EXPECT_THROW(Ladder({.min_micro_batch = 0}), UsageError);
  EXPECT_THROW(Ladder({.max_retries = -1}), UsageError);
}

}  // namespace
}  // namespace headroom::train
