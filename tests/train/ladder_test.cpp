#include "headroom/train/ladder.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom::train {
namespace {

using namespace literals;

const LadderOptions kOnlySmaller{.techniques = {}};

// The micro-batches that the ladder tries one after another, 0 for the same plan again.
std::vector<std::int64_t> tried(Ladder& ladder, Plan plan, std::int64_t rows) {
  std::vector<std::int64_t> micro_batches;
  while (const auto move = ladder.next({.plan = plan, .work = {.rows = rows}})) {
    micro_batches.push_back(move->kind == Event::Kind::retry ? 0 : move->plan.micro_batch);
    plan = move->plan;
  }
  ladder.begin_step();
  return micro_batches;
}

TEST(Ladder, TriesTheSamePlanOnceAndThenHalvesItWithoutPrices) {
  Ladder ladder(kOnlySmaller);
  EXPECT_EQ(tried(ladder, {.micro_batch = 32}, 32),
            (std::vector<std::int64_t>{0, 16, 0, 8, 0, 1, 0}));
}

// A run once ended although 14.8 MiB were free for 114 KiB: two requests of its last plan had been
// refused one after another.
TEST(Ladder, RunsTheLastPlanAgainWhereTheCardHadRoomForTheRequest) {
  LadderOptions options = kOnlySmaller;
  options.max_retries = 0;
  const auto retries = [&](Bytes asked, Bytes free) {
    Ladder ladder(options);
    int count = 0;
    while (ladder.next({.work = {.rows = 4}, .asked = asked, .free = free})) ++count;
    return count;
  };
  EXPECT_EQ(retries(114_KiB, 14_MiB), 4);
  EXPECT_EQ(retries(114_KiB, 1_MiB), 1);
  EXPECT_EQ(retries(2_MiB, 19_MiB), 1);
  EXPECT_EQ(retries(2_MiB, 20_MiB), 4);
}

TEST(Ladder, StartsFromTheBatchThatIsRunAndNotFromALargerPlan) {
  Ladder ladder(kOnlySmaller);
  EXPECT_EQ(tried(ladder, {}, 10)[1], 5);
  EXPECT_EQ(tried(ladder, {.micro_batch = 100}, 10)[1], 5);
  // Six of ten rows run as five and five.
  EXPECT_EQ(tried(ladder, {.micro_batch = 6}, 10)[1], 2);
}

TEST(Ladder, NeverGoesBelowTheLeastMicroBatch) {
  LadderOptions options = kOnlySmaller;
  options.min_micro_batch = 6;
  Ladder ladder(options);
  EXPECT_EQ(tried(ladder, {}, 16), (std::vector<std::int64_t>{0, 8, 0, 6, 0}));
  EXPECT_EQ(tried(ladder, {}, 4), (std::vector<std::int64_t>{0}));
}

TEST(Ladder, AddsTechniquesWhenTheMicroBatchIsAtItsLeast) {
  Ladder ladder(
      {.min_micro_batch = 4, .max_retries = 5, .techniques = {"checkpointing", "fused_loss"}});
  Plan plan{.micro_batch = 4};
  std::vector<std::string> plans;
  while (const auto move = ladder.next({.plan = plan, .work = {.rows = 8}})) {
    if (move->kind != Event::Kind::retry) plans.push_back(to_string(move->plan));
    plan = move->plan;
  }
  EXPECT_EQ(plans, (std::vector<std::string>{"micro-batch 4, checkpointing",
                                             "micro-batch 4, checkpointing, fused loss"}));
}

const std::set<std::string> kExact{"checkpointing", "fused_loss", "offload"};

TEST(Ladder, GivesTheLastRetryToTheHeaviestPlan) {
  Ladder ladder({.max_retries = 1, .techniques = kExact});
  const Plan plan{.micro_batch = 8};
  EXPECT_EQ(ladder.next({.plan = plan, .work = {.rows = 8}})->kind, Event::Kind::retry);
  EXPECT_EQ(ladder.next({.plan = plan, .work = {.rows = 8}})->plan,
            (Plan{.micro_batch = 1, .techniques = kExact}));
}

// The moves of a step in which every attempt fails.
std::vector<std::string> all_moves(Ladder& ladder, Plan plan, std::int64_t rows) {
  std::vector<std::string> moves;
  while (const auto move = ladder.next({.plan = plan, .work = {.rows = rows}})) {
    if (move->kind != Event::Kind::retry) moves.push_back(to_string(move->plan));
    plan = move->plan;
  }
  return moves;
}

TEST(Ladder, StoresWeightsInFewerBitsAfterAllElseAndBeforeAnotherDevice) {
  const std::string least = "micro-batch 1, checkpointing";
  const std::string eight = least + ", frozen weights in 8 bit";
  const std::string four = eight + ", frozen weights in 4 bit";
  for (const int retries : {1, 2, 3, 4}) {
    LadderOptions options{.max_retries = retries,
                          .techniques = {"checkpointing", "quantize_8bit", "quantize_4bit"}};
    options.elsewhere = [] { return std::vector<Elsewhere>{{"cuda:1", {}}}; };
    Ladder ladder(options);
    std::vector<std::string> expected{least, eight, four, four + ", on cuda:1"};
    if (retries > 1) expected.insert(expected.begin(), "micro-batch 1");
    EXPECT_EQ(all_moves(ladder, {.micro_batch = 2}, 2), expected) << retries;
  }
}

TEST(Ladder, OfAModelIn4BitHasNo8Bit) {
  Ladder ladder({.max_retries = 2, .techniques = {"quantize_8bit", "quantize_4bit"}});
  EXPECT_EQ(all_moves(ladder, {.micro_batch = 2, .techniques = {"quantize_4bit"}}, 2),
            (std::vector<std::string>{"micro-batch 1, frozen weights in 4 bit"}));
}

// A plan that fits, although it leaves less of the card than wished, comes before one that changes
// the result.
TEST(Ladder, StoresWeightsInFewerBitsOnlyIfNothingElseFits) {
  Prices prices({});
  const auto learn = [&](const std::set<std::string>& techniques, Bytes needed) {
    prices.learn(
        {.plan = {.micro_batch = 1, .techniques = techniques},
         .rows = 1,
         .requests = {{.bytes = needed.count, .kind = allocator::Operation::Kind::allocate},
                      {.kind = allocator::Operation::Kind::free}}});
  };
  learn({}, 900_MiB);
  learn({"quantize_8bit"}, 300_MiB);
  const Ladder ladder({.room = {.least = 200_MiB, .share = 0}, .techniques = {"quantize_8bit"}},
                      &prices);
  const auto techniques_on = [&](Bytes card) {
    return ladder.fastest({.micro_batch = 1}, {.rows = 1}, card)->techniques;
  };
  EXPECT_EQ(techniques_on(1200_MiB), std::set<std::string>());
  EXPECT_EQ(techniques_on(1000_MiB), std::set<std::string>());
  EXPECT_EQ(techniques_on(800_MiB), (std::set<std::string>{"quantize_8bit"}));
}

TEST(Ladder, ChangesTheAllocatorsSettingsWhenMemoryLayInPieces) {
  Ladder ladder({});
  const auto next = [&](Bytes asked, Bytes free, Bytes cached) {
    const Failure failure{.plan = {.micro_batch = 8},
                          .work = {.rows = 8},
                          .asked = asked,
                          .free = free,
                          .cached = cached};
    static_cast<void>(ladder.next(failure));
    const auto move = ladder.next(failure);
    ladder.begin_step();
    return *move;
  };
  EXPECT_EQ(next(100_MiB, 20_MiB, 90_MiB).kind, Event::Kind::allocator);
  EXPECT_EQ(next(100_MiB, 20_MiB, 90_MiB).plan.allocator, "expandable_segments:True");
  EXPECT_EQ(next(100_MiB, 20_MiB, 70_MiB).kind, Event::Kind::shrink);  // there was too little
  EXPECT_EQ(next(100_MiB, 200_MiB, 90_MiB).kind,
            Event::Kind::shrink);  // refused for another reason
}

TEST(Ladder, MovesToAnotherDeviceWhenNothingElseIsLeft) {
  LadderOptions options = kOnlySmaller;
  options.elsewhere = [] { return std::vector<Elsewhere>{{"cuda:1", 24_GiB}, {"cpu", {}}}; };
  Ladder ladder(options);
  const Failure failure{.plan = {.micro_batch = 1}, .work = {.rows = 8}};
  static_cast<void>(ladder.next(failure));
  const auto move = ladder.next(failure);
  EXPECT_EQ(move->kind, Event::Kind::device);
  EXPECT_EQ(move->plan, (Plan{.micro_batch = 1, .device = "cuda:1"}));
}

// Offload of a plan that would need 900 MiB of the card leaves 100 MiB there.
TEST(Ladder, OffloadsOnlyToAHostWithRoom) {
  Prices prices({});
  for (const bool offloads : {false, true}) {
    const Bytes needed = offloads ? 100_MiB : 900_MiB;
    Plan plan{.micro_batch = 1};
    if (offloads) plan.techniques = {"offload"};
    prices.learn(
        {.plan = plan,
         .rows = 1,
         .requests = {{.bytes = needed.count, .kind = allocator::Operation::Kind::allocate},
                      {.kind = allocator::Operation::Kind::free}}});
  }
  LadderOptions options{.room = {.least = 0_B, .share = 0}, .techniques = {"offload"}};
  const Failure failure{
      .plan = {.micro_batch = 1}, .work = {.rows = 1}, .asked = 900_MiB, .card = 500_MiB};
  const auto next_plan = [&](Bytes host) -> std::optional<Plan> {
    options.host_memory = [=] { return std::optional(host); };
    Ladder ladder(options, &prices);
    const auto move = ladder.next(failure);
    return move ? std::optional(move->plan) : std::nullopt;
  };
  EXPECT_EQ(next_plan(850_MiB), (Plan{.micro_batch = 1, .techniques = {"offload"}}));
  EXPECT_EQ(next_plan(750_MiB), std::nullopt);
}

TEST(Ladder, BeginsAnewWithEachStep) {
  Ladder ladder(kOnlySmaller);
  const auto first = tried(ladder, {}, 8);
  EXPECT_EQ(tried(ladder, {}, 8), first);
}

// The plan of a single row failed of batch norm, which needs several.
TEST(Ladder, TriesAboutTwiceTheRowsAfterAnotherFailureUntilAPlanThatHasFailed) {
  Ladder ladder(kOnlySmaller);
  const auto plans = tried(ladder, {}, 24);
  EXPECT_EQ(plans, (std::vector<std::int64_t>{0, 12, 0, 6, 0, 1, 0}));
  static_cast<void>(ladder.next({.plan = {.micro_batch = 8}, .work = {.rows = 24}}));
  std::vector<std::int64_t> larger;
  for (Plan plan{.micro_batch = 1};;) {
    const auto move = ladder.larger_than(plan, {.rows = 24});
    if (!move) break;
    EXPECT_EQ(move->kind, Event::Kind::grow);
    plan = move->plan;
    larger.push_back(plan.micro_batch);
  }
  EXPECT_EQ(larger, (std::vector<std::int64_t>{2, 4}));
  EXPECT_FALSE(ladder.larger_than({}, {.rows = 24})) << "the whole batch is the largest";
}

TEST(Ladder, CutsNoPartOfFewerRowsThanALayerNeeds) {
  Ladder ladder(kOnlySmaller);
  ladder.set_fewest_rows(2);
  EXPECT_EQ(tried(ladder, {}, 9), (std::vector<std::int64_t>{0, 3, 0}))
      << "2 would leave a single row";
  EXPECT_EQ(tried(ladder, {}, 3), (std::vector<std::int64_t>{0}));
}

TEST(Ladder, RefusesOptionsWithoutMeaning) {
  EXPECT_THROW(Ladder({.min_micro_batch = 0}), UsageError);
  EXPECT_THROW(Ladder({.fewest_rows = 0}), UsageError);
  EXPECT_THROW(Ladder({.max_retries = -1}), UsageError);
}

TEST(Room, IsTheLargerOfBytesAndShare) {
  EXPECT_EQ(Room().of(4_GiB), 512_MiB);
  EXPECT_EQ(Room().of(80_GiB), 4_GiB);
}

}  // namespace
}  // namespace headroom::train
