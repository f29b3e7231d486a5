// Steps whose memory bends (StepOptions::spill): what is needed later waits on the host before an
// attempt fails.
#include "headroom/memory/spill.h"

#include <gmock/gmock.h>

#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "text_net.h"
#include "zoo.h"

namespace headroom::train {
namespace {

StepOptions spilling(const Plan& plan = {}) {
  return {.max_grad_norm = 0.5,
          .plan = plan,
          .prices = false,
          .adapts = false,
          .spill = memory::SpillOptions{.host_memory = Bytes{1 << 30}}};
}

struct Ran {
  Tensors state;
  std::vector<double> losses;
  std::vector<int> attempts;
  std::vector<Event> events;
  memory::SpillUse use;
  Bytes reserved;
};

constexpr int kSteps = 3;
constexpr TextSizes kSizes{.vocabulary = 128, .width = 128, .dropout = 0.1, .blocks = 10};

Ran run(Bytes card, const Plan& plan, std::int64_t rows) {
  const sim::Simulation box =
      sim::simulate("1x" + std::to_string(card.count >> 10) + "KiB",
                    {.mode = sim::Mode::compute,
                     .settings = allocator::parse_settings("expandable_segments:True"),
                     .check_streams = true});
  const Training training = text(box.device(0), spilling(plan), kSizes);
  Ran ran;
  for (int i = 0; i < kSteps; ++i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    const Committed done = training.step->run(tokens(rows, 64, kSizes));
    ran.losses.push_back(done.loss());
    ran.attempts.push_back(done.attempts);
    ran.events.insert(ran.events.end(), done.events.begin(), done.events.end());
  }
  ran.state = everything(training);
  ran.use = *training.step->spilled();
  ran.reserved = Bytes{box.card(0).statistics().reserved_bytes.all.peak};
  return ran;
}

bool fitted(const Ran& ran) {
  return std::all_of(ran.attempts.begin(), ran.attempts.end(), [](int n) { return n == 1; });
}

// Each down to where its parameters, gradients and one layer's work fill the card.
TEST(SpilledStep, EndsEqualToTheBitWithEachTechnique) {
  struct Case {
    Plan plan;
    std::int64_t rows;
    std::vector<int> percents;
  };
  for (const auto& [plan, rows, percents] :
       {Case{{}, 16, {90, 70}}, Case{{.micro_batch = 12}, 32, {80}},
        Case{{.techniques = {"checkpointing"}}, 64, {90}},
        Case{{.micro_batch = 48, .techniques = {"checkpointing"}}, 64, {95}}}) {
    SCOPED_TRACE(to_string(plan));
    const Ran whole = run(Bytes{1LL << 30}, plan, rows);
    EXPECT_EQ(whole.use.refused, 0);
    EXPECT_EQ(whole.use.moved, Bytes{});
    for (const int percent : percents) {
      SCOPED_TRACE(percent);
      const Ran less = run(Bytes{whole.reserved.count * percent / 100}, plan, rows);
      ASSERT_TRUE(fitted(less));
      EXPECT_GT(less.use.rescued, 0);
      EXPECT_EQ(less.losses, whole.losses);
      ASSERT_FALSE(less.events.empty());
      EXPECT_EQ(less.events.front().kind, Event::Kind::spill);
      EXPECT_GE(less.events.front().requests, 1);
      expect_same(less.state, whole.state);
    }
  }
}

// ---- Refusals for no reason ----

constexpr const char* kRoom = "1GiB";

// Each animal's rounds, with a request refused; and how many requests there were.
struct Round {
  Tensors state;
  std::int64_t refused = 0;
  int attempts = 0, steps = 0;
};
Round round(const Species& species, const sim::Injector& injector) {
  const sim::Simulation box = sim::simulate(kRoom, {.mode = sim::Mode::compute});
  Animal animal = species.make(box.device(0), spilling());
  Round ran;
  {
    std::optional<sim::InjectionScope> disturbed;
    if (injector) disturbed.emplace(box.card(0), injector);
    for (const Tensors& batch : animal.batches)
      for (const auto& step : animal.steps) {
        ran.attempts += step->run(batch).attempts;
        ++ran.steps;
      }
  }
  ran.refused = animal.steps.front()->spilled()->refused;
  ran.state = animal.everything();
  return ran;
}

TEST(SpilledStep, SurvivesARefusalOfARequestOfEachAnimal) {
  for (const Species& species : zoo()) {
    SCOPED_TRACE(species.name);
    const Round whole = round(species, {});
    for (std::uint64_t request = 1;; request += 7) {
      SCOPED_TRACE(request);
      const Round disturbed = round(species, sim::once(request));
      if (disturbed.refused == 0) break;
      EXPECT_EQ(disturbed.attempts, disturbed.steps);
      expect_same(disturbed.state, whole.state);
    }
  }
}

// What no move can serve goes on to the ladder, which undoes the attempt.
TEST(SpilledStep, LeavesToTheLadderWhatNoMoveServes) {
  const sim::Simulation box = sim::simulate(kRoom, {.mode = sim::Mode::compute});
  const TextSizes sizes{.vocabulary = 256, .dropout = 0.1};
  const Training training = text(box.device(0), spilling(), sizes);
  const sim::Lift lift;
  const sim::InjectionScope disturbed(box.card(0), sim::lasting(300, lift));
  int attempts = 0;
  for (int i = 0; i < kSteps; ++i) attempts += training.step->run(tokens(64, 64, sizes)).attempts;
  EXPECT_GT(attempts, kSteps);
  EXPECT_GT(training.step->spilled()->refused, 0);
  EXPECT_EQ(training.step->steps(), kSteps);
}

}  // namespace
}  // namespace headroom::train
