// `headroom bench run` as a process: what it measures, and how it goes on after an end.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "headroom/base/file.h"
#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::WithEngine;

constexpr const char* kSmall = R"({"model_type":"gpt2","n_layer":4,"n_embd":64,"n_head":4,)"
                               R"("vocab_size":256,"n_positions":64})";

class BenchCommand : public ::testing::Test {
 protected:
  BenchCommand() : small_(world_.path("small") + ".json") { std::ofstream(small_) << kSmall; }

  [[nodiscard]] Arguments asked(Arguments more) const {
    more.insert(more.begin(), {"bench", "run", "--seq", "32", "--out", world_.path("out")});
    return more;
  }
  [[nodiscard]] Json document(const Arguments& more, int exit_code = 0) const {
    Arguments all = asked(more);
    all.push_back("--json");
    const Outcome outcome = world_.headroom(all);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.json();
  }
  // Without what a clock shows.
  static void drop_clocks(Json& document) {
    for (Json& model : document.at("models")) model.erase("planning_s");
  }

  WithEngine world_;
  const std::string small_;
};

// Steps of three kinds: the first one, those that repeat, and one of the rows that are left.
TEST_F(BenchCommand, NeedsWhatThePlanPredictsOnEachCard) {
  const Json results = document(
      {"--models", small_, "gpt2", "--samples", "200", "--gpus", "sim:4x1.2GiB", "--stages", "2"});
  ASSERT_EQ(results.at("models").size(), 2);
  for (const Json& model : results.at("models")) {
    SCOPED_TRACE(model.at("model"));
    EXPECT_EQ(model.at("state"), "finished") << model;
    EXPECT_EQ(model.at("steps"), 7);
    EXPECT_EQ(model.at("steps_run"), 4);
    EXPECT_EQ(model.at("steps_repeated"), 3);
    for (const char* figure : {"resident_bytes", "peak_requested_bytes", "peak_reserved_bytes"})
      EXPECT_EQ(model.at(figure), model.at("predicted").at(figure)) << figure;
    for (const Json& left : model.at("left_bytes")) EXPECT_EQ(left, 0);
    EXPECT_EQ(model.at("step_s"), model.at("predicted").at("step_s"));
    EXPECT_GT(model.at("over_time").at(0).size(), 24);
  }
  const std::string page = read_input(world_.path("out") + "/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("GPU 3"), HasSubstr("Memory never ran out."),
                          HasSubstr("One card alone"), HasSubstr("</html>")));
  EXPECT_EQ(read_input(world_.path("out") + "/results.json"), to_line(results) + "\n");
}

TEST_F(BenchCommand, GivesTheSameTwiceButForTimes) {
  const Arguments question{"--models", small_, "--samples", "40", "--gpus", "sim:2x1GiB"};
  Json first = document(question), second = document(question);
  drop_clocks(first);
  drop_clocks(second);
  EXPECT_EQ(first, second);
  EXPECT_TRUE(std::filesystem::exists(world_.path("out") + "/earlier-1/results.json"));
}

// On cards that others may use each model has a lease of its own, which ends with it.
TEST_F(BenchCommand, LeasesTheCardsForEachModel) {
  const std::string other = world_.path("other") + ".json";
  std::ofstream(other) << kSmall;
  const Outcome outcome = world_.headroom(
      asked({"--models", small_, other, "--samples", "40", "--gpus", "sim:2x1GiB@bench-leases"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("using lease")));
  const Json leases =
      world_.headroom({"--gpus", "sim:2x1GiB@bench-leases", "queue", "--json"}).json();
  EXPECT_TRUE(leases.at("leases").empty());
}

// Also if it was killed: what is there is whole, and the next run goes on with the second model.
TEST_F(BenchCommand, GoesOnWithTheModelThatItWasAt) {
  const Arguments question =
      asked({"--models", small_, "gpt2-xl", "--samples", "200", "--gpus", "sim:2x31.36GiB"});
  for (const int signal : {SIGINT, SIGKILL}) {
    std::filesystem::remove_all(world_.path("out"));
    const auto running = world_.start(question);
    ASSERT_TRUE(running->until_err_has("gpt2-xl: ")) << running->err();
    running->signal(signal);
    EXPECT_EQ(running->wait().exit_code, 128 + signal);
    const Json half = parse_json(read_input(world_.path("out") + "/results.json"), "results");
    ASSERT_EQ(half.at("models").size(), 1);
    EXPECT_FALSE(half.at("complete"));
    const Outcome rest = world_.headroom(question);
    EXPECT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_THAT(rest.err, HasSubstr("small.json are done"));
    const Json whole = parse_json(read_input(world_.path("out") + "/results.json"), "results");
    ASSERT_EQ(whole.at("models").size(), 2);
    EXPECT_EQ(whole.at("models").at(0), half.at("models").at(0));
    EXPECT_TRUE(whole.at("complete"));
  }
}

// The first plan runs out for good; quantised adapters see a quarter of the samples.
TEST_F(BenchCommand, TakesALighterPlanAfterAnOutOfMemoryAndMarksIt) {
  const Json once = document({"--models", small_, "--samples", "64", "--gpus", "sim:1x1GiB",
                              "--inject", "oom@step=1:phase=forward"});
  EXPECT_EQ(once.at("models").at(0).at("state"), "finished");
  EXPECT_EQ(once.at("models").at(0).at("ooms"), 1);
  EXPECT_FALSE(once.at("models").at(0).at("lighter"));
  const Json model = document({"--models", small_, "--samples", "64", "--gpus", "sim:2x1GiB",
                               "--inject", "oom@100:lasting"},
                              76)
                         .at("models")
                         .at(0);
  EXPECT_EQ(model.at("state"), "out of memory");
  EXPECT_EQ(model.at("tries").size(), 6);
  EXPECT_EQ(model.at("tries").at(1).at("way"), "all weights, optimizer states in 8 bit");
  EXPECT_EQ(model.at("tries").at(1).at("plan").at("optimizer"), "adamw8bit");
  EXPECT_EQ(model.at("tries").at(5).at("plan").at("quantize"), "4bit");
  EXPECT_TRUE(model.at("lighter"));
  EXPECT_TRUE(model.at("step_s").is_null());
  const Json adapters = document({"--models", small_, "--samples", "64", "--gpus", "sim:1x1GiB",
                                  "--tune", "lora", "--quantize", "4bit"})
                            .at("models")
                            .at(0);
  EXPECT_EQ(adapters.at("samples"), 16);
  EXPECT_FALSE(adapters.at("comparable"));
}

TEST_F(BenchCommand, ComputesIfAsked) {
  const Json model = document({"--models", small_, "--samples", "96", "--gpus", "sim:2x1GiB",
                               "--dtype", "float32", "--compute"})
                         .at("models")
                         .at(0);
  EXPECT_FALSE(model.at("dry"));
  EXPECT_EQ(model.at("steps_run"), 3);
  EXPECT_LT(model.at("loss_after"), model.at("loss_before"));
  EXPECT_EQ(model.at("peak_reserved_bytes"), model.at("predicted").at("peak_reserved_bytes"));
}

TEST_F(BenchCommand, RefusesWhatItCannotDo) {
  const auto refused = [&](const Arguments& more, const char* words) {
    const Outcome outcome = world_.headroom(asked(more));
    EXPECT_EQ(outcome.exit_code, 64) << ::testing::PrintToString(more);
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(world_.path("out")));
  };
  refused({"--gpus", "sim:1x1GiB"}, "--models is required");
  refused({"--models", "gpt2", "gpt2", "--gpus", "sim:1x1GiB"}, "each model once");
  refused({"--models", "gpt9", "--gpus", "sim:1x1GiB"}, "gpt9");
  refused({"--models", "gpt2", "--samples", "0", "--gpus", "sim:1x1GiB"}, "whole number from 1");
  refused({"--models", "gpt2", small_, "--stages", "5", "--gpus", "sim:8x1GiB"}, "--stages");
  const Json none = document({"--models", "gpt2-xl", "--gpus", "sim:2x2GiB"}, 2);
  EXPECT_EQ(none.at("models").at(0).at("state"), "does not fit");
}

}  // namespace
}  // namespace headroom
