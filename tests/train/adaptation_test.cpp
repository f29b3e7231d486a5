// Changes of plan between steps, by themselves and in runs on simulated cards. A run with prices
// has a child process of its own: plans are priced before a process runs backward.
#include "headroom/train/detail/adaptation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include "headroom/sim/child.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/oracle/dice.h"
#include "text_net.h"

namespace headroom::train {
namespace {

using namespace literals;
using detail::Adaptation;

constexpr Work kWork{.rows = 32};

// Adaptation of a run whose prices are not known.
struct Unpriced {
  Plan wish{.micro_batch = 16};
  Ladder ladder{LadderOptions{}};
  Adaptation adaptation{wish, /*grow_after=*/2, ladder, nullptr};
  Plan plan = wish;

  std::optional<Ladder::Move> commit(std::int64_t retries = 0) {
    const auto move = adaptation.after(plan, kWork, retries);
    if (move) plan = move->plan;
    return move;
  }
  // Steps that commit until the plan grows.
  std::int64_t steps_until_it_grows() {
    for (std::int64_t steps = 0;; ++steps) {
      if (const auto move = adaptation.before(plan, kWork, {})) {
        EXPECT_EQ(move->kind, Event::Kind::grow);
        plan = move->plan;
        return steps;
      }
      static_cast<void>(commit());
    }
  }
  void fail(std::int64_t next) {
    adaptation.failed(plan, kWork);
    plan.micro_batch = next;
    static_cast<void>(commit());
  }
};

TEST(Adaptation, KeepsWeightsInFewerBitsWhenThePlanGrows) {
  Unpriced run;
  run.plan = {.micro_batch = 8, .techniques = {"checkpointing", "quantize_8bit"}};
  static_cast<void>(run.steps_until_it_grows());
  EXPECT_EQ(run.plan, (Plan{.micro_batch = 8, .techniques = {"quantize_8bit"}}));
  static_cast<void>(run.steps_until_it_grows());
  EXPECT_EQ(run.plan, (Plan{.micro_batch = 16, .techniques = {"quantize_8bit"}}));
}

// ---- Thrashing

TEST(Adaptation, MakesThePlanSmallerAfterThreeStepsOfRetries) {
  Unpriced run;
  EXPECT_FALSE(run.commit(1));
  EXPECT_FALSE(run.commit(4));
  const auto move = run.commit(1);
  ASSERT_TRUE(move);
  EXPECT_EQ(move->kind, Event::Kind::thrash);
  EXPECT_EQ(move->plan.micro_batch, 11);  // 12 of 32 rows would be three parts of 11
}

TEST(Adaptation, LeavesAloneWhatRetriesNowAndThen) {
  Unpriced run;
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(run.commit(i % 3 == 0 ? 0 : 1));
}

TEST(Adaptation, LetsARunThrashInItsSmallestParts) {
  Unpriced run;
  for (int i = 0; i < 100; ++i) static_cast<void>(run.commit(1));
  EXPECT_EQ(run.plan.micro_batch, 1);
  EXPECT_FALSE(run.commit(1));
}

// ---- Growth

TEST(Adaptation, DoublesTheMicroBatchAfterStepsWithoutTrouble) {
  Unpriced run;
  run.fail(4);
  EXPECT_EQ(run.steps_until_it_grows(), 2);
  EXPECT_EQ(run.plan.micro_batch, 8);
  EXPECT_EQ(run.steps_until_it_grows(), 2);
  EXPECT_EQ(run.plan, run.wish);
}

TEST(Adaptation, WaitsTwiceAsLongAfterAGrowthThatFailed) {
  Unpriced run;
  run.fail(4);
  std::int64_t wait = 2;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(run.steps_until_it_grows(), wait);
    run.fail(4);
    wait *= 2;
  }
}

TEST(Adaptation, GoesBackAtOnceFromTheSmallPlanOfALongBatch) {
  Unpriced run;
  for (int i = 0; i < 3; ++i) static_cast<void>(run.commit());
  run.adaptation.failed(run.plan, {.rows = 32, .scale = 20});
  static_cast<void>(run.adaptation.after({.micro_batch = 1}, {.rows = 32, .scale = 20}, 0));
  const auto move = run.adaptation.before({.micro_batch = 1}, kWork, {});
  ASSERT_TRUE(move);
  EXPECT_EQ(move->plan, run.wish);
}

TEST(Adaptation, SaysNothingOfALongBatchThatKeptItsPlan) {
  Unpriced run;
  for (int i = 0; i < 3; ++i) static_cast<void>(run.commit());
  const Work longer{.rows = 32, .scale = 20};
  run.adaptation.failed(run.plan, longer);  // once; the same plan succeeds when it runs again
  static_cast<void>(run.adaptation.after(run.plan, longer, 0));
  EXPECT_FALSE(run.adaptation.before(run.plan, kWork, {}));
}

// ---- On cards

constexpr std::int64_t kRowsOfText = 64, kWordsOfRow = 64;

StepOptions with_margin() {
  return {.ladder = {.room = {.least = 2_MiB, .share = 0.05}, .techniques = {"fused_loss"}},
          .grow_after = 3};
}

sim::Simulation card_of(Bytes size) {
  return sim::simulate(gpu::SimulatedBox{.cards = {{.name = "card", .total = size}}});
}

// How a run ended.
struct Ending {
  std::int64_t micro_batch = 0, ooms = 0, steps = 0;
};

// `steps` steps, while a neighbour takes `share` of the card at the request `at` of the steps.
Ending ending_with_neighbour(Bytes size, double share, std::uint64_t at, int steps) {
  const std::string text_of_ending = sim::in_child([&] {
    const sim::Simulation box = card_of(size);
    const Training run = text(box.device(0), with_margin());
    run.step->prepare(tokens(kRowsOfText, kWordsOfRow));
    TORCH_CHECK(run.step->prices() != nullptr, run.step->why_unpriced());
    const sim::InjectionScope scope(box.card(0), sim::neighbour({{at, share}}));
    std::int64_t ooms = 0;
    for (int i = 0; i < steps; ++i)
      ooms += run.step->run(tokens(kRowsOfText, kWordsOfRow)).attempts - 1;
    std::ostringstream out;
    const std::int64_t most = run.step->plan().micro_batch;
    out << (most == 0 ? kRowsOfText : most) << " " << ooms << " " << run.step->steps();
    return out.str();
  });
  Ending ending;
  std::istringstream(text_of_ending) >> ending.micro_batch >> ending.ooms >> ending.steps;
  return ending;
}

// The most rows with which two parts run on a card of this size, one step after another.
std::int64_t largest_micro_batch(Bytes size) {
  const auto fits = [&](std::int64_t micro_batch) {
    const sim::Simulation box = card_of(size);
    StepOptions options = with_margin();
    options.prices = options.adapts = false;
    options.ladder.max_retries = 0;
    options.plan = {.micro_batch = micro_batch};
    try {
      const Training run = text(box.device(0), options);
      for (int i = 0; i < 3; ++i)
        if (run.step->run(tokens(2 * micro_batch, kWordsOfRow)).attempts > 1) return false;
      return true;
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  };
  const std::string largest = sim::in_child([&] {
    std::int64_t fitting = 0, too_large = kRowsOfText + 1;
    while (too_large - fitting > 1) {
      const std::int64_t middle = (fitting + too_large) / 2;
      (fits(middle) ? fitting : too_large) = middle;
    }
    return std::to_string(fitting);
  });
  return std::stoll(largest);
}

TEST(Survive, ANeighbourOfThirtyPercentInAnyStep) {
  oracle::Dice dice(1);
  for (int i = 0; i < 12; ++i) {
    const Bytes size{dice.between(100, 240) << 20};
    const auto request = static_cast<std::uint64_t>(dice.between(1, 1200));
    SCOPED_TRACE(to_string(size) + ", request " + std::to_string(request));
    const Ending ending = ending_with_neighbour(size, 0.3, request, 8);
    EXPECT_EQ(ending.steps, 8);
    EXPECT_LE(ending.ooms, 1);
  }
}

TEST(Survive, WithTheLargestMicroBatchThatFits) {
  for (const Bytes size : {100_MiB, 133_MiB, 170_MiB, 240_MiB}) {
    const Bytes left = size - Bytes{std::llround(0.3 * static_cast<double>(size.count))};
    const std::int64_t largest = largest_micro_batch(left - with_margin().ladder.room.of(left));
    const std::int64_t parts = plan::count_of_parts({.micro_batch = largest}, kRowsOfText);
    for (const std::uint64_t request : {1, 150, 500}) {
      SCOPED_TRACE(to_string(size) + ", request " + std::to_string(request));
      const Ending ending = ending_with_neighbour(size, 0.3, request, 8);
      EXPECT_LE(ending.ooms, 1);
      EXPECT_LE(plan::count_of_parts({.micro_batch = ending.micro_batch}, kRowsOfText), parts);
    }
  }
}

}  // namespace
}  // namespace headroom::train
