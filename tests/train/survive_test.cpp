// Steps on a simulated card whose memory matters: plans that are priced, chosen, and changed before
// anything fails. Prices come from a child process, which cannot run backward once this process
// has: each test prices before its first step.
#include <gmock/gmock.h>

#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "text_net.h"

namespace headroom::train {
namespace {

using namespace literals;
using ::testing::Each;
using ::testing::Field;

constexpr std::int64_t kBatch = 32, kLength = 64;

const StepOptions kPriced{.ladder = {.room = {.least = 2_MiB, .share = 0.05},
                                     .techniques = {"checkpointing", "fused_loss"}},
                          .grow_after = 3};

// Three steps, without an out-of-memory.
bool runs(Bytes card, const Plan& plan, std::int64_t rows, std::int64_t length) {
  const sim::Simulation box =
      sim::simulate(gpu::SimulatedBox{.cards = {{.name = "card", .total = card}}});
  StepOptions options;
  options.prices = options.adapts = false;
  options.plan = plan;
  options.ladder.max_retries = 0;
  try {
    Training run = text(box.device(0), options);
    int attempts = 0;
    for (int i = 0; i < 3; ++i) attempts += run.step->run(tokens(rows, length)).attempts;
    return attempts == 3;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

TEST(Prices, AreWhatEachPlanNeeds) {
  std::vector<std::pair<Plan, Work>> cases;
  for (const std::set<std::string>& techniques : {std::set<std::string>{}, {"checkpointing"}})
    for (const std::int64_t micro_batch : {32, 31, 16, 11, 8, 3, 1})
      cases.push_back({{.micro_batch = micro_batch, .techniques = techniques}, {.rows = kBatch}});
  cases.push_back({{.micro_batch = 8}, {.rows = kBatch, .scale = 4}});
  std::vector<Bytes> needed;
  {
    const sim::Simulation box = sim::simulate("1GiB");
    Training run = text(box.device(0), kPriced);
    run.step->prepare(tokens(kBatch, kLength));
    ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
    for (const auto& [plan, work] : cases)
      needed.push_back(run.step->prices()->needed(plan, work)->largest());
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [plan, work] = cases[i];
    SCOPED_TRACE(to_string(plan));
    const auto length = static_cast<std::int64_t>(kLength * work.scale);
    EXPECT_TRUE(runs(needed[i] + 2_MiB, plan, kBatch, length)) << to_string(needed[i]);
    EXPECT_FALSE(runs(needed[i] - 4_MiB, plan, kBatch, length)) << to_string(needed[i]);
  }
}

TEST(Prices, AreFoundWithoutAnyRequestToTheCard) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Training run = text(box.device(0), kPriced);
  const Tensors batch = tokens(kBatch, kLength);
  const std::uint64_t before = box.card(0).requests();
  const Tensors all = everything(run);
  const std::uint64_t looking = box.card(0).requests();
  run.step->prepare(batch);
  EXPECT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
  EXPECT_EQ(box.card(0).requests(), looking);
  EXPECT_GT(looking, before);
  const Tensors after = everything(run);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(torch::equal(after[i], all[i])) << i;
}

TEST(Prices, SayWhyThereAreNone) {
  Training run = convolutions(torch::kCPU, {.prices = true});
  run.step->prepare(run.batch(0));
  EXPECT_EQ(run.step->prices(), nullptr);
  EXPECT_EQ(run.step->why_unpriced(), "a CPU has no memory of its own");
}

// ---- The first plan

TEST(Survive, BeginsWithTheLargestMicroBatchThatFitsWithRoom) {
  const Bytes usable = 72_MiB - kPriced.ladder.room.of(72_MiB);
  Plan first;
  {
    const sim::Simulation box = sim::simulate("72MiB", {.mode = sim::Mode::compute});
    Training run = text(box.device(0), kPriced);
    const Committed done = run.step->run(tokens(kBatch, kLength));
    EXPECT_EQ(done.attempts, 1);
    EXPECT_TRUE(done.events.empty()) << "nothing failed";
    first = done.plan;
  }
  EXPECT_FALSE(first.has("checkpointing"));
  EXPECT_TRUE(runs(usable, first, 2 * first.micro_batch, kLength));
  const auto sizes = micro_batches(kBatch, {});
  const auto at = std::find(sizes.begin(), sizes.end(), first.micro_batch);
  ASSERT_TRUE(at != sizes.begin() && at != sizes.end()) << to_string(first);
  const Plan next{.micro_batch = *std::prev(at)};
  EXPECT_FALSE(runs(usable, next, 2 * next.micro_batch, kLength)) << to_string(first);
}

// torch.cuda.set_per_process_memory_fraction, for example.
TEST(Survive, SeesALimitOnItsShareOfTheCard) {
  const sim::Simulation box = sim::simulate("288MiB", {.mode = sim::Mode::compute});
  box.card(0).set_memory_fraction(0.25);
  Training run = text(box.device(0), kPriced);
  const Committed done = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_LT(done.plan.micro_batch, kBatch);
}

// A training planned with all that was free, and took what other jobs had reserved.
TEST(Survive, APlanFitsIntoWhatALeaseAllowsOfTheCard) {
  const sim::Simulation box = sim::simulate("288MiB", {.mode = sim::Mode::compute});
  StepOptions options = kPriced;
  std::vector<Bytes> reserved;
  options.usable = [](c10::Device) { return 72_MiB; };
  options.reserve = [&](c10::Device, Bytes bytes) {
    reserved.push_back(bytes);
    return true;
  };
  Training run = text(box.device(0), options);
  const Committed done = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_EQ(run.step->usable()->least(), 72_MiB);
  ASSERT_EQ(reserved.size(), 1U);
  EXPECT_EQ(reserved[0], run.step->prices()->needed(done.plan, {.rows = kBatch})->largest());
  EXPECT_LE(reserved[0], 72_MiB);
}

TEST(Survive, ALeaseThatCannotGrowMakesThePlanSmaller) {
  const sim::Simulation box = sim::simulate("288MiB", {.mode = sim::Mode::compute});
  StepOptions options = kPriced;
  Bytes most = 288_MiB;
  options.usable = [&](c10::Device) { return most; };
  options.reserve = [&](c10::Device, Bytes bytes) {
    if (bytes > 72_MiB) most = 72_MiB;  // another job took the rest at this moment
    return bytes <= most;
  };
  Training run = text(box.device(0), options);
  const Committed done = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_LE(run.step->prices()->needed(done.plan, {.rows = kBatch})->largest(), 72_MiB);
}

TEST(Survive, TakesCheckpointingWhenNoMicroBatchFits) {
  const sim::Simulation box = sim::simulate("80MiB", {.mode = sim::Mode::compute});
  StepOptions options = kPriced;
  options.ladder.min_micro_batch = 32;
  Training run = text(box.device(0), options);
  const Committed done = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_TRUE(done.plan.has("checkpointing"));
  EXPECT_EQ(done.plan.micro_batch, 32);
}

// ---- On the way

TEST(Survive, ALongBatchAndGoesBackToItsPlan) {
  const sim::Simulation box = sim::simulate("160MiB", {.mode = sim::Mode::compute});
  Training run = text(box.device(0), kPriced);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run.step->run(tokens(kBatch, kLength)).events.empty());
  const Committed done = run.step->run(tokens(kBatch, 20 * kLength));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_LT(done.plan.micro_batch, 8);
  const Committed after = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(after.plan, kPriced.plan);
  ASSERT_EQ(after.events.size(), 1U);
  EXPECT_EQ(after.events[0].kind, Event::Kind::grow);
}

TEST(Survive, ANeighbourAndGrowsBackWhenItHasGone) {
  const sim::Simulation box = sim::simulate("160MiB", {.mode = sim::Mode::compute});
  Training run = text(box.device(0), kPriced);
  EXPECT_TRUE(run.step->run(tokens(kBatch, kLength)).events.empty());
  {
    const sim::InjectionScope scope(box.card(0), sim::neighbour(0.5));
    const Committed done = run.step->run(tokens(kBatch, kLength));
    EXPECT_LE(done.attempts, 2);
    EXPECT_LT(largest_part(done.plan, kBatch), kBatch);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(run.step->run(tokens(kBatch, kLength)).plan, done.plan);
  }
  Committed last = run.step->run(tokens(kBatch, kLength));
  for (int i = 0; i < 10; ++i) last = run.step->run(tokens(kBatch, kLength));
  EXPECT_EQ(largest_part(last.plan, kBatch), kBatch);
}

TEST(Survive, ASpuriousRefusalWithoutASmallerPlan) {
  const sim::Simulation box = sim::simulate("160MiB", {.mode = sim::Mode::compute});
  Training run = text(box.device(0), kPriced);
  for (int i = 0; i < 20; ++i) {
    const sim::InjectionScope scope(box.card(0), sim::once(static_cast<std::uint64_t>(2 * i + 1)));
    const Committed done = run.step->run(tokens(kBatch, kLength));
    EXPECT_EQ(done.plan, kPriced.plan);
    EXPECT_EQ(done.attempts, 2);
    EXPECT_TRUE(done.events.at(0).spurious);
  }
}

}  // namespace
}  // namespace headroom::train
