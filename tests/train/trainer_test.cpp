#include "headroom/train/trainer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "nets.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace headroom::train {
namespace {

using namespace literals;
using headroom::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kPerEpoch = 4;

// Batches by number, so that a place is a number, too.
struct Numbered {
  std::function<Tensors(int)> batch;
  std::int64_t at = 0;
  std::vector<std::int64_t> given;
};

Batches batches_of(const std::shared_ptr<Numbered>& numbered) {
  return {.next =
              [numbered] {
                numbered->given.push_back(numbered->at);
                return numbered->batch(static_cast<int>(numbered->at++));
              },
          .per_epoch = kPerEpoch,
          .position = [numbered] { return std::to_string(numbered->at); },
          .go_to = [numbered](const std::string& place) { numbered->at = std::stoll(place); }};
}

struct Job {
  Training net;
  std::shared_ptr<Numbered> data = std::make_shared<Numbered>();
  std::unique_ptr<Trainer> trainer;
};

using Make = Training (*)(c10::Device, const StepOptions&);

Job job(Make make, c10::Device device, const TrainerOptions& options, bool evaluates = false) {
  Job one{.net = make(device, options.step)};
  one.data->batch = one.net.batch;
  std::optional<Batches> evaluation;
  if (evaluates) {
    const auto other = std::make_shared<Numbered>();
    other->batch = one.net.batch;
    evaluation = batches_of(other);
  }
  one.trainer = std::make_unique<Trainer>(*one.net.module, *one.net.optimizer, one.net.objective,
                                          batches_of(one.data), options, evaluation);
  return one;
}

TrainerOptions options_for(const std::filesystem::path& out = {}) {
  TrainerOptions options{.epochs = 2, .out = out};
  options.step.prices = false;
  return options;
}

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::vector<Json> lines;
  std::istringstream text(read_input(file));
  for (std::string line; std::getline(text, line);)
    lines.push_back(parse_json(line, file.string()));
  return lines;
}

TEST(Trainer, TrainsEachBatchOnceInOrder) {
  Job one = job(transformer, torch::kCPU, options_for());
  EXPECT_EQ(one.trainer->run().steps, 8);
  // The first batch is looked at once more, to price the plans.
  EXPECT_THAT(one.data->given, ElementsAre(0, 0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Trainer, GoesOnAsIfItHadNotStopped) {
  for (const Make make : {transformer, convolutions}) {
    const TemporaryFolder whole, parts;
    Job right = job(make, torch::kCPU, options_for(whole.path()), true);
    static_cast<void>(right.trainer->run());
    for (const std::int64_t last : {3, 4, 7, 8}) {
      TrainerOptions options = options_for(parts.path());
      options.resume = true;
      Job part = job(make, torch::kCPU, options, true);
      options.listener.should_stop = [&] { return part.trainer->step().steps() == last; };
      part = job(make, torch::kCPU, options, true);
      EXPECT_EQ(part.trainer->run().steps, last);
      if (last == 8) expect_same(everything(part.net), everything(right.net));
    }
    for (const char* file : {"metrics.jsonl", "plan_schedule.jsonl"}) {
      const auto ours = lines_of(parts.path() / file), theirs = lines_of(whole.path() / file);
      ASSERT_EQ(ours.size(), theirs.size()) << file;
      for (std::size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(ours[i]["step"], theirs[i]["step"]) << file;
        if (ours[i].contains("loss")) {
          EXPECT_EQ(ours[i]["loss"], theirs[i]["loss"]);
        }
      }
    }
  }
}

// A run that shrank, and one without any failure that is given the same plan for every step.
TEST(Trainer, ObeysThePlansOfAnotherRun) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const TemporaryFolder first, second;
  TrainerOptions options = options_for(first.path());
  options.step.adapts = false;
  Job shrunk = job(convolutions, box.device(0), options);
  {
    sim::Lift lift;
    options.listener.on_event = [&](const Event& event) {
      if (event.kind == Event::Kind::shrink) lift.now();
    };
    shrunk = job(convolutions, box.device(0), options);
    const sim::InjectionScope injected(box, sim::lasting(300, lift));
    static_cast<void>(shrunk.trainer->run());
    ASSERT_TRUE(lift.done());
  }
  TrainerOptions given = options_for(second.path());
  given.plan_schedule = first.path() / "plan_schedule.jsonl";
  Job clean = job(convolutions, box.device(0), given);
  const Trained done = clean.trainer->run();
  expect_same(everything(clean.net), everything(shrunk.net));
  for (const Event& event : done.events) EXPECT_EQ(event.kind, Event::Kind::checkpoint);
  EXPECT_EQ(read_input(second.path() / "plan_schedule.jsonl"),
            read_input(first.path() / "plan_schedule.jsonl"));
}

TEST(Trainer, DoesNotRetryABug) {
  const TemporaryFolder folder;
  TrainerOptions options = options_for(folder.path());
  Job one = job(transformer, torch::kCPU, options);
  Objective objective = one.net.objective;
  int calls = 0;
  objective.loss = [&, loss = one.net.objective.loss](const Tensors& rows) {
    if (++calls == 3) throw std::runtime_error("a bug in the model");
    return loss(rows);
  };
  Trainer trainer(*one.net.module, *one.net.optimizer, objective, batches_of(one.data), options);
  try {
    static_cast<void>(trainer.run());
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "a bug in the model");
  }
  EXPECT_EQ(calls, 3);
  // The run goes on with the batch of the failed step.
  options.resume = true;
  Job again = job(transformer, torch::kCPU, options);
  const Trained done = again.trainer->run();
  EXPECT_EQ(done.resumed_from, 2);
  EXPECT_THAT(again.data->given, ElementsAre(0, 2, 3, 4, 5, 6, 7));
  Job right = job(transformer, torch::kCPU, options_for());
  static_cast<void>(right.trainer->run());
  expect_same(everything(again.net), everything(right.net));
}

// Every request of an evaluation is refused once; then every request of that size, until the parts
// get smaller.
TEST(Trainer, SurvivesEveryOutOfMemoryInAnEvaluation) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const auto run = [&](const sim::Injector& injector, const std::optional<sim::Lift>& lift) {
    TrainerOptions options = options_for();
    options.epochs = 1;
    options.listener.on_event = [lift](const Event& event) {
      if (lift && event.kind == Event::Kind::shrink) lift->now();
    };
    trace::Recorder recorder({.limit = 1});
    const memory::History history(box.device(0), recorder);
    Job one = job(transformer, box.device(0), options, true);
    const sim::InjectionScope scope(box, injector);
    const Trained done = one.trainer->run();
    return std::pair(done, everything(one.net));
  };
  std::uint64_t requests = 0;
  const auto counted = [&](const sim::Request& request) -> sim::Disturbance {
    if (request.phase == trace::Phase::evaluation) ++requests;
    return false;
  };
  const auto [right, expected] = run(counted, {});
  ASSERT_GT(requests, 10U);
  for (std::uint64_t k = 1; k <= requests; k += 3) {
    SCOPED_TRACE(k);
    const auto [spurious, after] = run(sim::in_phase(trace::Phase::evaluation, sim::once(k)), {});
    EXPECT_EQ(spurious.evaluation->loss, right.evaluation->loss);
    ASSERT_THAT(spurious.events, SizeIs(2));
    EXPECT_EQ(spurious.events[1].kind, Event::Kind::retry);
    expect_same(after, expected);
    const sim::Lift lift;
    const auto [lasting, later] =
        run(sim::in_phase(trace::Phase::evaluation, sim::lasting(k, lift)), lift);
    EXPECT_NEAR(lasting.evaluation->loss, right.evaluation->loss, 1e-5);
    expect_same(later, expected);
  }
}

TEST(Trainer, EndsEarlyWhenEvaluationsGetNoBetter) {
  TrainerOptions options = options_for();
  options.epochs = 20;
  options.patience = 2;
  options.step.schedule = [](std::int64_t) { return 0.0; };  // learns nothing
  Job one = job(transformer, torch::kCPU, options, true);
  const Trained done = one.trainer->run();
  EXPECT_TRUE(done.is_early);
  EXPECT_EQ(done.steps, 3 * kPerEpoch);
}

TEST(Trainer, KeepsTheBestEvaluation) {
  const TemporaryFolder folder;
  Job one = job(transformer, torch::kCPU, options_for(folder.path()), true);
  const Trained done = one.trainer->run();
  ASSERT_TRUE(done.best);
  EXPECT_LE(done.best->loss, done.evaluation->loss);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "best"));
}

// A neighbour fills the card beyond nine tenths: what is cached goes back to the driver, once.
TEST(Trainer, GivesItsCacheBackWhenANeighbourComes) {
  const sim::Simulation box = sim::simulate("24MiB", {.mode = sim::Mode::compute});
  TrainerOptions options = options_for();
  options.step.adapts = false;
  options.check_memory_every = 1;
  options.listener.on_step = [&](const Progress& now) {
    if (now.step != 3) return;
    // A part of the step's own work waits in the cache, and others take nearly all the rest.
    const auto big =
        torch::empty({4 << 20}, torch::TensorOptions(box.device(0)).dtype(torch::kChar));
    const auto stats = memory::get_gpu_memory_stats(box.device(0));
    box.card(0).set_used_by_others(*stats.total - stats.reserved - Bytes{1 << 20});
  };
  Job one = job(convolutions, box.device(0), options);
  const Trained done = one.trainer->run();
  ASSERT_THAT(done.events, SizeIs(1));
  EXPECT_EQ(done.events[0].kind, Event::Kind::trim);
  EXPECT_EQ(done.events[0].step, 3);
}

TEST(Trainer, SaysWhatHoldsMemoryThatGrows) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  TrainerOptions options = options_for();
  options.steps = 60;
  std::vector<std::string> said;
  options.listener.on_line = [&](std::string_view line) { said.emplace_back(line); };
  Job one = job(transformer, box.device(0), options);
  Objective objective = one.net.objective;
  Tensors kept;
  objective.loss = [&, loss = one.net.objective.loss](const Tensors& rows) {
    kept.push_back(torch::relu(torch::zeros({32, 1024}, rows[0].device())));
    return loss(rows);
  };
  Trainer trainer(*one.net.module, *one.net.optimizer, objective, batches_of(one.data), options);
  static_cast<void>(trainer.run());
  std::erase_if(said, [](const auto& line) { return line.find("grows") == std::string::npos; });
  ASSERT_THAT(said, SizeIs(1));
  EXPECT_THAT(said[0], HasSubstr("aten::relu"));
  Job right = job(transformer, box.device(0), options);
  said.clear();
  static_cast<void>(right.trainer->run());
  std::erase_if(said, [](const auto& line) { return line.find("grows") == std::string::npos; });
  EXPECT_THAT(said, IsEmpty());
}

// A full disk ended a run at its first checkpoint.
TEST(Trainer, GoesOnWithoutACheckpointThatCannotBeWritten) {
  constexpr rlim_t kLess = 4500;  // than the random numbers of a checkpoint
  const TemporaryFolder folder;
  TrainerOptions options = options_for(folder.path());
  options.save_every = 1;
  std::vector<std::string> said;
  options.listener.on_line = [&](std::string_view line) {
    if (line.find("no checkpoint") != std::string_view::npos) said.emplace_back(line);
  };
  std::optional<headroom::testing::FileSizeLimit> full;
  options.listener.on_step = [&](const Progress& now) {
    if (now.step == 3) full.emplace(kLess);
    if (now.step == 6) full.reset();
  };
  Job one = job(transformer, torch::kCPU, options);
  const Trained done = one.trainer->run();
  EXPECT_EQ(done.steps, 8);
  EXPECT_EQ(done.not_saved, "");
  ASSERT_THAT(said, SizeIs(1)) << "once";
  EXPECT_THAT(said[0], HasSubstr("the training goes on"));
  EXPECT_THAT(lines_of(folder.path() / "metrics.jsonl"), SizeIs(8));
  full.emplace(kLess);
  Job last = job(transformer, torch::kCPU, options_for(folder.path() / "other"));
  EXPECT_THAT(last.trainer->run().not_saved, HasSubstr("cannot write"));
}

// The best checkpoint of a run that was resumed before it made room for a worse one.
TEST(Trainer, KeepsABestCheckpointUntilThereIsABetterOne) {
  const TemporaryFolder folder;
  TrainerOptions options = options_for(folder.path());
  options.evaluate_every = 1;
  static_cast<void>(job(transformer, torch::kCPU, options, true).trainer->run());
  const auto best = [&] { return Checkpoints(folder.path() / "best").newest_more().value_or(""); };
  const std::string before = best();
  ASSERT_NE(before, "");
  options.resume = true;
  options.epochs = 4;
  options.step.schedule = [](std::int64_t) { return 1e4; };  // it learns no more
  static_cast<void>(job(transformer, torch::kCPU, options, true).trainer->run());
  EXPECT_EQ(best(), before);
}

TEST(Trainer, RefusesBatchesThatItCannotUse) {
  Training net = transformer(torch::kCPU, {});
  EXPECT_THROW(Trainer(*net.module, *net.optimizer, net.objective, {}), UsageError);
  TrainerOptions options;
  options.plan_schedule = "no/such/file";
  const auto data = std::make_shared<Numbered>();
  data->batch = net.batch;
  EXPECT_THROW(Trainer(*net.module, *net.optimizer, net.objective, batches_of(data), options),
               InputError);
}

}  // namespace
}  // namespace headroom::train
