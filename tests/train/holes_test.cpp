// Six ways in which trainers that shrink a micro-batch by themselves lose a step, a run or memory.
// Each is a test here. They were found in the source of the most complete of those trainers,
// MosaicML's Composer with device_train_microbatch_size="auto".
#include <gmock/gmock.h>

#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/recorder.h"
#include "headroom/train/evaluation.h"
#include "text_net.h"

namespace headroom::train {
namespace {

using namespace literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const StepOptions kUnpriced{.max_grad_norm = 0.5, .prices = false};

// On a card of 64 MiB each step takes more scratch memory than the one before, so the allocator
// never has it and empties its cache in every step: it thrashes.
struct Thrashing {
  sim::Simulation box = sim::simulate("64MiB", {.mode = sim::Mode::compute});
  Training run;
  std::unique_ptr<Step> step;
  std::int64_t scratch = 32 << 20;

  explicit Thrashing(const Plan& plan) : run(transformer(box.device(0))) {
    StepOptions options = kUnpriced;
    options.plan = plan;
    Objective objective = run.objective;
    objective.loss = [this, loss = objective.loss](const Tensors& rows) {
      static_cast<void>(at::empty({scratch}, at::device(box.device(0)).dtype(at::kByte)));
      return loss(rows);
    };
    step = std::make_unique<Step>(*run.module, *run.optimizer, objective, options);
  }
  Committed next() {
    scratch += 2 << 20;
    return step->run(run.batch(static_cast<int>(step->steps())));
  }
  [[nodiscard]] std::int64_t retries() const {
    return memory::get_gpu_memory_stats(box.device(0)).retries;
  }
};

// What is left after these plans, one a step, on a card with room.
Tensors after_plans(Training (*make)(c10::Device, const StepOptions&),
                    const std::vector<Plan>& plans) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  StepOptions options = kUnpriced;
  options.adapts = false;
  const Training run = make(box.device(0), options);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    run.step->set_plan(plans[i]);
    static_cast<void>(run.step->run(run.batch(static_cast<int>(i))));
  }
  return everything(run);
}

void expect_equal(const Tensors& ours, const Tensors& right) {
  ASSERT_EQ(ours.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], right[i])) << i;
}

// (a) The trainer looked for thrashing after optimizer.step(), and then ran the batch again with a
// smaller micro-batch: the batch was applied twice.
TEST(Hole, AStepThatThrashedIsAppliedOnce) {
  std::vector<Plan> plans;
  std::vector<Event::Kind> kinds;
  Tensors ours;
  {
    Thrashing thrashing({});
    for (int i = 0; i < 9; ++i) {
      const Committed done = thrashing.next();
      EXPECT_EQ(done.step, i + 1);
      EXPECT_EQ(done.attempts, 1);
      plans.push_back(done.plan);
      for (const Event& event : done.events) kinds.push_back(event.kind);
    }
    EXPECT_EQ(thrashing.step->steps(), 9);
    ours = everything(thrashing.run);
  }
  EXPECT_THAT(kinds, ElementsAre(Event::Kind::thrash, Event::Kind::thrash));
  EXPECT_LT(largest_part(plans.back(), 7), 4);
  expect_equal(ours, after_plans(transformer, plans));
}

// (b) Thrashing with a micro-batch of 1 raised an error: a run that made progress, though slowly,
// was ended.
TEST(Hole, ARunThatThrashesInItsSmallestPartsGoesOn) {
  Thrashing thrashing({.micro_batch = 1});
  static_cast<void>(thrashing.next());  // with an empty cache
  for (int i = 0; i < 12; ++i) {
    const std::int64_t before = thrashing.retries();
    EXPECT_THAT(thrashing.next().events, IsEmpty());
    EXPECT_GT(thrashing.retries(), before) << "does not thrash";
  }
  EXPECT_EQ(thrashing.step->steps(), 13);
}

// (c) An out-of-memory inside optimizer.step(), where Adam makes its states in the first step, was
// retried over weights of which some had been updated.
TEST(Hole, AnUpdateThatFailedHalfwayIsUndone) {
  const auto trained = [](optim::OptimizerForm form, const sim::Injector& injector) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
    trace::Recorder recorder({.limit = 1});
    const memory::History history(box.device(0), recorder);  // so that requests have a phase
    Training run = transformer(box.device(0));
    run.optimizer = optim::make_adam(run.optimizer->parameters(), {.form = form});
    Step step(*run.module, *run.optimizer, run.objective);
    const sim::InjectionScope scope(box.card(0), injector);
    const Committed done = step.run(run.batch(0));
    return std::pair(done.attempts, everything(run));
  };
  std::uint64_t requests = 0;
  const sim::Injector counted = sim::in_phase(trace::Phase::optimizer, [&](const sim::Request&) {
    ++requests;
    return sim::Disturbance();
  });
  static_cast<void>(trained(optim::OptimizerForm::fused, counted));
  EXPECT_EQ(requests, 0U);  // its states are made before the step
  const auto [attempts, right] = trained(optim::OptimizerForm::loop, counted);
  EXPECT_EQ(attempts, 1);
  ASSERT_GT(requests, 20U);
  const std::uint64_t in_all = requests;
  for (std::uint64_t k = 1; k <= in_all; ++k) {
    SCOPED_TRACE(k);
    const auto [twice, ours] =
        trained(optim::OptimizerForm::loop, sim::in_phase(trace::Phase::optimizer, sim::once(k)));
    EXPECT_EQ(twice, 2);
    expect_equal(ours, right);
  }
}

// (d) Random numbers and batch norm's buffers were not put back: the step that was run again had
// other dropout masks, and running statistics had seen the batch twice.
TEST(Hole, ARepeatedStepHasTheSameRandomNumbersAndCountsItsBatchOnce) {
  const auto trained = [](const sim::Injector& injector, const Plan& plan) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
    StepOptions options = kUnpriced;
    options.plan = plan;
    const Training run = convolutions(box.device(0), options);
    const std::uint64_t before = box.card(0).requests();
    const sim::InjectionScope scope(box.card(0), injector);
    const Committed done = run.step->run(run.batch(0));
    const std::uint64_t requests = box.card(0).requests() - before;
    for (const auto& buffer : run.module->named_buffers())
      if (buffer.key().ends_with("num_batches_tracked")) {
        EXPECT_EQ(buffer->item<std::int64_t>(), 1) << buffer.key();
      }
    return std::tuple(done.attempts, requests, everything(run));
  };
  for (const Plan& plan : {Plan{}, Plan{.micro_batch = 3}}) {
    SCOPED_TRACE(to_string(plan));
    const auto [attempts, requests, right] = trained(sim::any_of({}), plan);
    EXPECT_EQ(attempts, 1);
    for (const std::uint64_t from_the_end : {0, 10, 30}) {
      const auto [twice, unused, ours] = trained(sim::once(requests - from_the_end), plan);
      EXPECT_EQ(twice, 2);
      expect_equal(ours, right);
    }
  }
}

// (e) The micro-batch was halved, though 15 of 16 rows would have fitted, and never grew again.
TEST(Hole, AShrunkMicroBatchIsTheLargestThatFitsAndGrowsBack) {
  const Bytes total = 2_GiB;
  const sim::Simulation box = sim::simulate("2GiB");
  const StepOptions options{.ladder = {.room = {.least = 2_MiB, .share = 0},
                                       .techniques = {"checkpointing", "fused_loss"}},
                            .plan = {.micro_batch = 32},
                            .grow_after = 3};
  const Training run = text(box.device(0), options);
  const Tensors batch = tokens(480, 256);
  run.step->prepare(batch);
  ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
  EXPECT_THAT(run.step->run(batch).events, IsEmpty());
  const auto needed = run.step->prices()->needed({.micro_batch = 30}, {.rows = 480});
  box.card(0).empty_cache();  // what it holds, no neighbour can take
  box.card(0).set_used_by_others(total - needed->largest() - 3_MiB);
  const Committed shrunk = run.step->run(batch);
  EXPECT_EQ(shrunk.attempts, 1);
  EXPECT_GE(shrunk.plan.micro_batch, 30);
  EXPECT_LT(shrunk.plan.micro_batch, 32);
  box.card(0).set_used_by_others({});
  for (int i = 0; i < 4; ++i) static_cast<void>(run.step->run(batch));
  EXPECT_EQ(run.step->plan(), options.plan);
}

// (f) A run began with an out-of-memory of the full batch, to find its micro-batch. One outside of
// the forward and backward pass, such as in the transfer of data or in evaluation, ended it.
TEST(Hole, ARunBeginsWithoutAnOutOfMemory) {
  const sim::Simulation box = sim::simulate("72MiB");
  const Training run =
      text(box.device(0), {.ladder = {.room = {.least = 2_MiB, .share = 0},
                                      .techniques = {"checkpointing", "fused_loss"}}});
  const Committed done = run.step->run(tokens(32, 64));
  EXPECT_EQ(done.attempts, 1);
  EXPECT_LT(largest_part(done.plan, 32), 32);
  EXPECT_EQ(box.card(0).statistics().num_ooms, 0);
}

TEST(Hole, OutOfMemoryInDataEvaluationAndWhatIsLoggedIsSurvived) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  trace::Recorder recorder({.limit = 1});
  const memory::History history(box.device(0), recorder);
  const Training run = transformer(box.device(0), kUnpriced);
  {
    const sim::InjectionScope scope(box.card(0), sim::in_phase(trace::Phase::data, sim::once(2)));
    EXPECT_EQ(run.step->run(run.batch(0)).attempts, 2);
  }
  std::vector<Event> events;
  Evaluation evaluation(*run.module, run.objective,
                        {.on_event = [&](const Event& event) { events.push_back(event); }});
  const Batches batches{.next = [&] { return run.batch(1); }, .per_epoch = 1};
  {
    const sim::InjectionScope scope(box.card(0), sim::once(5));
    EXPECT_EQ(evaluation.run(batches).rows, 7);
    EXPECT_THAT(events, SizeIs(2));
  }
  const Committed done = run.step->run(run.batch(1));
  const sim::InjectionScope scope(box.card(0), sim::every(1));  // nothing can be had
  EXPECT_GT(done.loss(), 0);
  EXPECT_GT(done.gradient_norm(), 0);
}

}  // namespace
}  // namespace headroom::train
