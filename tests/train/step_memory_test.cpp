// Memory runs out at every single request of a run, once or until the plan gets smaller. No step
// may be lost, done twice, or come out different by a bit.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "nets.h"

namespace headroom::train {
namespace {

constexpr int kSteps = 2;

using MakeTraining = Training (*)(c10::Device, const StepOptions&);

struct Result {
  Tensors all;
  std::vector<double> losses;
  std::vector<Plan> plans;
  std::vector<Event> events;
  std::uint64_t requests = 0;  // of the steps
};

// Trains on a card of its own. Each step begins with the plan given for it, if any.
Result train(MakeTraining make, const sim::Injector& injector, const std::vector<Plan>& plans = {},
             StepOptions options = {}) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Result result;
  options.max_grad_norm = 0.5;
  options.prices = options.adapts = false;
  const auto and_then = options.on_event;
  options.on_event = [&](const Event& event) {
    if (and_then) and_then(event);
    result.events.push_back(event);
  };
  Training run = make(box.device(0), options);
  const std::uint64_t before = box.card(0).requests();
  {
    const sim::InjectionScope scope(box.card(0), injector);
    for (int i = 0; i < kSteps; ++i) {
      if (!plans.empty()) run.step->set_plan(plans[static_cast<std::size_t>(i)]);
      const Committed done = run.step->run(run.batch(i));
      EXPECT_EQ(done.step, i + 1);
      result.losses.push_back(done.loss());
      result.plans.push_back(done.plan);
    }
  }
  result.requests = box.card(0).requests() - before;
  result.all = everything(run);
  return result;
}

void expect_same_result(const Result& ours, const Result& right) {
  EXPECT_EQ(ours.losses, right.losses);
  EXPECT_EQ(ours.plans, right.plans);
  ASSERT_EQ(ours.all.size(), right.all.size());
  for (std::size_t i = 0; i < right.all.size(); ++i)
    EXPECT_TRUE(at::equal(ours.all[i], right.all[i])) << "tensor " << i;
}

struct Net {
  const char* name;
  MakeTraining make;
  std::int64_t micro_batch;
};

void PrintTo(const Net& net, std::ostream* out) {
  *out << net.name;
}

class StepWithoutMemory : public ::testing::TestWithParam<Net> {};

TEST_P(StepWithoutMemory, SurvivesASpuriousRefusalOfEachRequestUnchanged) {
  const auto& [name, make, micro_batch] = GetParam();
  const StepOptions options{.plan = {.micro_batch = micro_batch}};
  const Result right = train(make, sim::any_of({}), {}, options);
  EXPECT_GT(right.requests, 100U);
  for (std::uint64_t k = 1; k <= right.requests; ++k) {
    SCOPED_TRACE("request " + std::to_string(k));
    const Result ours = train(make, sim::once(k), {}, options);
    expect_same_result(ours, right);
    ASSERT_EQ(ours.events.size(), 2U);
    EXPECT_EQ(ours.events[0].kind, Event::Kind::oom);
    EXPECT_EQ(ours.events[1].kind, Event::Kind::retry);
    if (HasFailure()) break;
  }
}

TEST_P(StepWithoutMemory, EndsALastingRefusalOfEachRequestAsACleanRunWithItsPlans) {
  const auto& [name, make, micro_batch] = GetParam();
  const StepOptions options{.plan = {.micro_batch = micro_batch}};
  const std::uint64_t requests = train(make, sim::any_of({}), {}, options).requests;
  std::map<std::vector<std::int64_t>, Result> clean;  // by their micro-batches
  for (std::uint64_t k = 1; k <= requests; ++k) {
    SCOPED_TRACE("request " + std::to_string(k));
    const sim::Lift lift;
    StepOptions lifting = options;
    lifting.on_event = [&](const Event& event) {
      if (event.kind == Event::Kind::shrink) lift.now();
    };
    const Result ours = train(make, sim::lasting(k, lift), {}, lifting);
    EXPECT_TRUE(lift.done());
    EXPECT_LT(ours.plans.back().micro_batch, 7);
    std::vector<std::int64_t> micro_batches;
    for (const Plan& plan : ours.plans) micro_batches.push_back(plan.micro_batch);
    if (!clean.contains(micro_batches))
      clean.emplace(micro_batches, train(make, sim::any_of({}), ours.plans));
    expect_same_result(ours, clean.at(micro_batches));
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, StepWithoutMemory,
                         ::testing::Values(Net{"transformer", transformer, 0},
                                           Net{"transformer_in_parts", transformer, 3},
                                           Net{"convolutions", convolutions, 0},
                                           Net{"convolutions_in_parts", convolutions, 3}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace headroom::train
