// `headroom train` against memory that runs out, signals and kill -9: it ends with the weights of a
// run that met none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "headroom/base/file.h"
#include "headroom/base/text.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

std::size_t steps_written(const TrainingWorld& world, const std::string& out) {
  const std::string text = read_file(world.path(out) + "/metrics.jsonl").value_or("");
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// ---- Memory runs out ----

class TrainInjected : public ::testing::Test {
 protected:
  // A step that is refused memory fails: nothing moves to the host.
  [[nodiscard]] Outcome run(const std::string& injection, const Arguments& more = {}) const {
    return bending(injection, Arguments{"spill=off"} + more);
  }
  // As users run it.
  [[nodiscard]] Outcome bending(const std::string& injection, const Arguments& more = {}) const {
    return world_.train(world_.on_tokens("out", {"steps=3", "--inject", injection}) + more);
  }
  [[nodiscard]] std::string undisturbed() const {
    return weights_of(world_.train(world_.on_tokens("plain", {"steps=3"})));
  }
  // The same with the plan of each of its steps given from the beginning.
  [[nodiscard]] std::string with_the_plans_of(const Outcome& outcome) const {
    const std::string plans = outcome.json().at("plan_schedule").get<std::string>();
    return weights_of(
        world_.train(world_.on_tokens("clean", {"steps=3", "plan_schedule=" + plans})));
  }

  TrainingWorld world_;
};

TEST_F(TrainInjected, ASpuriousFailureChangesNothing) {
  const std::string expected = undisturbed();
  for (const int k : {1, 2, 15, 40, 80, 150, 300, 500})
    EXPECT_EQ(weights_of(run("oom@" + std::to_string(k))), expected) << k;
}

TEST_F(TrainInjected, ASpuriousFailureInEachPhaseChangesNothing) {
  const std::string expected = undisturbed();
  for (const char* phase : {"data", "forward", "backward", "optimizer"}) {
    const Outcome outcome = run(std::string("oom@step=2:phase=") + phase);
    EXPECT_EQ(weights_of(outcome), expected) << phase;
    EXPECT_THAT(events_of(outcome), ElementsAre("oom", "retry", "checkpoint")) << phase;
    const Json oom = outcome.json().at("events")[0];
    EXPECT_EQ(oom.at("step"), 2) << phase;
    EXPECT_EQ(oom.at("spurious"), true) << phase;
    EXPECT_GT(oom.at("free_bytes").get<std::int64_t>(), 0) << phase;
  }
}

TEST_F(TrainInjected, MemoryBendsBeforeAStepFails) {
  const std::string expected = undisturbed();
  for (const char* phase : {"data", "forward", "backward", "optimizer"}) {
    const Outcome outcome = bending(std::string("oom@step=2:phase=") + phase);
    EXPECT_EQ(weights_of(outcome), expected) << phase;
    EXPECT_THAT(events_of(outcome), ElementsAre("spill", "checkpoint")) << phase;
    EXPECT_EQ(outcome.json().at("events")[0].at("step"), 2) << phase;
    EXPECT_EQ(outcome.json().at("events")[0].at("requests"), 1) << phase;
    EXPECT_EQ(outcome.json().at("spill").at("rescued"), 1) << phase;
  }
  const Outcome outcome = bending("oom@step=2:phase=eval", {"eval_every=1"});
  EXPECT_THAT(events_of(outcome), Contains("spill"));
  EXPECT_THAT(bending("oom@300:lasting", {"min_batch_size=1"}).err,
              HasSubstr("less memory for more time"));
}

TEST_F(TrainInjected, ASpuriousFailureInAnEvaluationChangesNothing) {
  const Arguments each{"eval_every=1"};
  const std::string expected =
      weights_of(world_.train(world_.on_tokens("plain", {"steps=3"}) + each));
  const Outcome outcome = run("oom@step=2:phase=eval", each);
  EXPECT_EQ(weights_of(outcome), expected);
  EXPECT_THAT(events_of(outcome), Contains("retry"));
}

TEST_F(TrainInjected, ANeighbourChangesNothing) {
  EXPECT_EQ(weights_of(run("neighbour@step=2:30%")), undisturbed());
}

// Its step could not be priced afterwards: "its memory is not known".
TEST_F(TrainInjected, AFailureWhileBuildingLeavesThePricesKnown) {
  const Outcome outcome = run("oom@5");
  EXPECT_THAT(outcome.err, Not(HasSubstr("is not known")));
  EXPECT_THAT(events_of(outcome), Contains("oom")) << "a failure while building is told, too";
}

TEST_F(TrainInjected, ALastingFailureWhileBuildingEndsWithAReport) {
  for (const int k : {1, 15}) {
    const Outcome outcome = run("oom@" + std::to_string(k) + ":lasting");
    EXPECT_EQ(outcome.exit_code, 76);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("Out of memory on sim:0"), HasSubstr(" asked"),
                                   HasSubstr("was refused, although ")));
    EXPECT_TRUE(outcome.json().at("out_of_memory").is_object());
    EXPECT_FALSE(fs::exists(world_.path("out"))) << "nothing half-written";
  }
}

TEST_F(TrainInjected, ALastingFailureWhileBuildingGoesToTheCpuIfAllowed) {
  const Outcome outcome = run("oom@1:lasting", {"allow_cpu=true"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("device"), "cpu");
}

TEST_F(TrainInjected, ALastingFailureInAStepMakesThePlanSmaller) {
  for (const int k : {80, 150, 400}) {
    const Outcome outcome = run("oom@" + std::to_string(k) + ":lasting", {"min_batch_size=1"});
    const std::string weights = weights_of(outcome);
    EXPECT_THAT(events_of(outcome), Contains(AnyOf("shrink", "technique"))) << k;
    EXPECT_EQ(weights, with_the_plans_of(outcome)) << k;
    EXPECT_EQ(outcome.json().at("samples_seen"), 24);
    const Json document = outcome.json();
    for (const Json& event : document.at("events")) EXPECT_EQ(event.at("spurious"), false) << k;
  }
}

TEST_F(TrainInjected, AFailureInEveryPlanEndsWithAReportAndACheckpoint) {
  const Outcome outcome = run("oom@100:every=1");
  EXPECT_EQ(outcome.exit_code, 76);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("Out of memory on sim:0"), HasSubstr("is saved in ")));
  EXPECT_TRUE(outcome.json().at("out_of_memory").is_object());
  const Outcome then = world_.train(world_.on_tokens("out", {"steps=3", "--resume"}));
  EXPECT_EQ(weights_of(then), with_the_plans_of(then));
}

// ---- Signals, kill -9 and torn files ----

class TrainInterrupted : public ::testing::Test {
 protected:
  static constexpr int kSteps = 30;

  [[nodiscard]] Arguments arguments(const std::string& out, const Arguments& more = {}) const {
    return world_.on_tokens(out, {"steps=30", "save_every=1"}) + more;
  }
  [[nodiscard]] std::string uninterrupted() const {
    return weights_of(world_.train(arguments("plain")));
  }
  [[nodiscard]] Outcome resume() const { return world_.train(arguments("out", {"--resume"})); }
  // A run that has written so many lines of metrics.
  [[nodiscard]] std::unique_ptr<Running> started(std::size_t lines) const {
    auto running = world_.start_training(arguments("out", {"--resume"}));
    (void)running->until([&](const Running&) { return steps_written(world_, "out") >= lines; });
    return running;
  }

  TrainingWorld world_;
};

TEST_F(TrainInterrupted, SigtermFinishesTheStepSavesAndExits143) {
  const auto running = started(3);
  running->signal(SIGTERM);
  const Outcome stopped = running->wait();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_EQ(stopped.json().at("stopped"), true);
  const auto steps = stopped.json().at("steps").get<int>();
  EXPECT_LT(steps, kSteps);
  const Outcome then = resume();
  EXPECT_EQ(then.json().at("resumed_from"), steps);
  EXPECT_EQ(weights_of(then), uninterrupted());
  EXPECT_EQ(world_.metrics("out", "loss").size(), std::size_t{kSteps});
}

TEST_F(TrainInterrupted, CtrlCExits130) {
  const auto running = started(3);
  running->signal(SIGINT);
  EXPECT_EQ(running->wait().exit_code, 130);
}

// 50 in the long form: HEADROOM_KILLS=50.
TEST_F(TrainInterrupted, SurvivesKillsAtAnyInstant) {
  const std::string expected = uninterrupted();
  const auto kills = to_integer(environment("HEADROOM_KILLS").value_or("5")).value_or(5);
  std::mt19937 random(1);
  for (int i = 0; i < kills; ++i) {
    const auto running = started(steps_written(world_, "out") + random() % 10);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    running->signal(SIGKILL);
    (void)running->wait();
    if (steps_written(world_, "out") < kSteps) continue;
    EXPECT_EQ(weights_of(resume()), expected) << "after kill " << i + 1;
    fs::remove_all(world_.path("out"));
  }
  EXPECT_EQ(weights_of(resume()), expected);
}

TEST_F(TrainInterrupted, SurvivesAKillWhileItSaves) {
  const auto running = started(3);
  const auto saves = [&] {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(world_.path("out"), error))
      if (entry.path().filename().string().starts_with("checkpoint-") &&
          entry.path().has_extension())
        return true;
    return false;
  };
  // Saving takes a millisecond or two where the disk is fast: look often.
  EXPECT_TRUE(running->until([&](const Running&) {
    for (int i = 0; i < 1000; ++i)
      if (saves()) return true;
    return false;
  }));
  running->signal(SIGKILL);
  (void)running->wait();
  EXPECT_EQ(weights_of(resume()), uninterrupted());
}

TEST_F(TrainInterrupted, RefusesATornCheckpointAndUsesTheOneBefore) {
  const auto running = started(3);
  running->signal(SIGTERM);
  const int steps = running->wait().json().at("steps").get<int>();
  char newest[32];
  std::snprintf(newest, sizeof newest, "checkpoint-%08d", steps);
  const fs::path file = fs::path(world_.path("out")) / newest / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) / 2);
  const Outcome then = resume();
  EXPECT_THAT(then.err, AllOf(HasSubstr("not used: "), HasSubstr(newest)));
  EXPECT_EQ(then.json().at("resumed_from"), steps - 1);
  EXPECT_EQ(weights_of(then), uninterrupted());
}

// Dropout has other random numbers there; without it the losses are those of the run that stayed.
TEST_F(TrainInterrupted, GoesOnUnderAnotherPlanAndOnAnotherDevice) {
  const Arguments model{"model.config=" + world_.gpt_without_dropout()};
  const auto running = world_.start_training(arguments("out", model));
  ASSERT_TRUE(running->until([&](const Running&) { return steps_written(world_, "out") >= 3; }));
  running->signal(SIGTERM);
  (void)running->wait();
  const std::string plans = world_.folder().write(
      "plans.jsonl", R"({"step": 1, "plan": {"micro_batch": 3, "checkpointing": true}})"
                     "\n");
  Arguments elsewhere =
      arguments("out", model + Arguments{"--resume", "device=cpu", "plan_schedule=" + plans});
  std::erase(elsewhere, "--gpus");
  std::erase(elsewhere, "sim:1x64MiB");
  const Outcome there = world_.train(elsewhere), here = world_.train(arguments("plain", model));
  ASSERT_EQ(there.exit_code, 0) << there.err;
  EXPECT_EQ(there.json().at("device"), "cpu");
  EXPECT_EQ(there.json().at("plan").at("micro_batch"), 3);
  EXPECT_NEAR(there.json().at("final_loss").get<double>(),
              here.json().at("final_loss").get<double>(), 1e-4);
}

TEST_F(TrainInterrupted, TwoRunsDoNotWriteInOneFolder) {
  const auto running = world_.start_training(arguments("out", {"steps=1000000"}));
  ASSERT_TRUE(running->until([&](const Running&) { return steps_written(world_, "out") >= 1; }));
  const Outcome second = world_.train(arguments("out"));
  EXPECT_EQ(second.exit_code, 75) << second.err;
  EXPECT_THAT(second.err, HasSubstr("another run writes in " + world_.path("out")));
  running->signal(SIGTERM);
  (void)running->wait();
  EXPECT_FALSE(fs::exists(world_.path("out/earlier-1")));
}

TEST_F(TrainInterrupted, WithNothingLeftToTrainItSaysSo) {
  ASSERT_EQ(world_.train(arguments("out")).exit_code, 0);
  const Outcome again = world_.train(arguments("out", {"--resume"}));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("nothing is left to train"));
}

TEST_F(TrainInterrupted, WhatFailsBeforeItsFirstStepLeavesAnEarlierRunAlone) {
  ASSERT_EQ(world_.train(arguments("out")).exit_code, 0);
  const Outcome failed = world_.train(arguments("out", {"--inject", "oom@100:every=1"}));
  EXPECT_EQ(failed.exit_code, 76) << failed.err;
  EXPECT_FALSE(fs::exists(world_.path("out/earlier-1")));
  EXPECT_TRUE(fs::exists(world_.path("out/checkpoint-00000030")));
}

TEST_F(TrainInterrupted, ANewRunKeepsTheEarlierOnesCheckpoints) {
  ASSERT_EQ(world_.train(arguments("out")).exit_code, 0);
  const Outcome again = world_.train(arguments("out"));
  EXPECT_THAT(again.err, HasSubstr("earlier-1"));
  EXPECT_TRUE(fs::exists(world_.path("out/earlier-1/checkpoint-00000030")));
  EXPECT_TRUE(again.json().at("resumed_from").is_null());
}

}  // namespace
}  // namespace headroom::testing
