// `headroom train` on several cards: replicas and stages give the results of one card, survive, and
// tell of each card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "headroom/base/text.h"
#include "tests/train/command_world.h"

namespace headroom::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class TrainTeams : public ::testing::Test {
 protected:
  // Without dropout, whose random numbers each card draws for itself.
  [[nodiscard]] Arguments arguments(const std::string& out, const Arguments& more = {}) const {
    Arguments all = world_.on_tokens(
        out, {"model.config=" + world_.gpt_without_dropout(), "steps=6", "save_every=2"});
    std::replace(all.begin(), all.end(), std::string("sim:1x64MiB"), std::string("sim:4x64MiB"));
    return all + more;
  }
  [[nodiscard]] Outcome on_one(const std::string& out, const Arguments& more = {}) const {
    return world_.train(arguments(out, more));
  }
  [[nodiscard]] Outcome on_four(const std::string& out, const Arguments& more = {}) const {
    return world_.train(arguments(out, kFour + more));
  }
  [[nodiscard]] std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const Json& line : world_.metrics(out, "loss")) all.push_back(line.at("loss"));
    return all;
  }
  void expect_losses_of(const std::string& out, const std::string& other) const {
    const auto one = losses(out), two = losses(other);
    ASSERT_EQ(one.size(), two.size());
    ASSERT_FALSE(one.empty());
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(one[i], two[i], 2e-5 * two[i]) << "step " << i + 1;
  }

  // With the sizes of those with tensors, but for the random generators, of which a card has one.
  [[nodiscard]] std::set<std::string> files_of(const std::string& out) const {
    std::set<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(world_.path(out))) {
      const std::string name = fs::relative(entry.path(), world_.path(out)).string();
      const bool has_tensors = entry.path().extension() == ".safetensors" &&
                               entry.path().filename() != "random.safetensors";
      if (name.find("tfevents") == std::string::npos)
        files.insert(has_tensors ? name + " " + std::to_string(entry.file_size()) : name);
    }
    return files;
  }

  const Arguments kFour{"replicas=2", "stages=2"};
  TrainingWorld world_;
};

// In a box of its own, and in one that is shared.
TEST_F(TrainTeams, LieOnTheCardsThatAreNamed) {
  for (const std::string box : {"sim:4x64MiB", "sim:4x64MiB@named-cards"}) {
    Arguments named = arguments(
        "named", {"stages=2", "cards=3,1", "checkpointed_stages=0", "micro_batch=2", "steps=1"});
    std::replace(named.begin(), named.end(), std::string("sim:4x64MiB"), box);
    const Outcome outcome = world_.train(named);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json().at("cards")[0].at("device"), "sim:3") << box;
    EXPECT_EQ(outcome.json().at("cards")[1].at("device"), "sim:1") << box;
    EXPECT_EQ(outcome.json().at("plan").at("micro_batch"), 2);
    fs::remove_all(world_.path("named"));
  }
  for (const auto& [key, words] :
       {std::pair("cards=1", "2 different numbers"), std::pair("cards=1,1", "2 different numbers"),
        std::pair("cards=1,4", "numbers below the 4 cards of --gpus"),
        std::pair("checkpointed_stages=2", "numbers below the 2 stages")}) {
    const Outcome outcome = world_.train(arguments("refused", {"stages=2", key}));
    EXPECT_EQ(outcome.exit_code, 64);
    EXPECT_THAT(outcome.err, HasSubstr(words));
  }
}

// What a stage computes again changes no loss.
TEST_F(TrainTeams, HaveTheLossesOfOneCardWithSomeStagesCheckpointed) {
  static_cast<void>(weights_of(on_one("one")));
  const Outcome outcome = world_.train(arguments("several", {"stages=2", "checkpointed_stages=1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_losses_of("several", "one");
}

TEST_F(TrainTeams, HaveTheLossesOfOneCard) {
  static_cast<void>(weights_of(on_one("one")));
  const std::vector<Arguments> teams{
      kFour, {"replicas=4"}, {"stages=2"}, {"split=1,1", "pipeline=gpipe"}, {"replicas=3"}};
  for (const Arguments& team : teams) {
    SCOPED_TRACE(join({team.begin(), team.end()}, " "));
    const Outcome outcome = world_.train(arguments("several", team));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json().at("samples_seen"), 48);
    expect_losses_of("several", "one");
    fs::remove_all(world_.path("several"));
  }
}

TEST_F(TrainTeams, TellOfEachCard) {
  const Outcome outcome =
      on_four("out", {"--trace", world_.path("run.trace"), "--html", world_.path("run.html"),
                      "--snapshot", world_.path("run.pickle")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json document = outcome.json();
  ASSERT_EQ(document.at("cards").size(), 4U);
  std::int64_t highest = 0;
  for (int card = 0; card < 4; ++card) {
    const std::string name = "sim:" + std::to_string(card);
    EXPECT_THAT(outcome.err, HasSubstr("GPU Memory Summary (" + name + "):"));
    const Json& one = document.at("cards")[card];
    EXPECT_EQ(one.at("device"), name);
    EXPECT_EQ(one.at("replica"), card / 2);
    EXPECT_EQ(one.at("stage"), card % 2);
    const std::int64_t peak = one.at("peak").at("reserved_bytes");
    EXPECT_GT(peak, 0);
    highest = std::max(highest, peak);
    for (const char* kind : {".trace", ".html", ".pickle"})
      EXPECT_GT(fs::file_size(world_.path("run.sim" + std::to_string(card) + kind)), 1000U);
  }
  EXPECT_EQ(document.at("peak").at("reserved_bytes"), highest);
  EXPECT_FALSE(fs::exists(world_.path("run.trace")));
}

TEST_F(TrainTeams, ADryRunHasANeedForEachCard) {
  const Outcome outcome = on_four("out", {"--dry-run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json document = outcome.json();
  ASSERT_EQ(document.at("cards").size(), 4U);
  std::set<std::int64_t> needs;
  for (const Json& card : document.at("cards"))
    needs.insert(card.at("needed_bytes").get<std::int64_t>());
  EXPECT_THAT(needs, Contains(document.at("needed_bytes").get<std::int64_t>()));
  const Outcome run = on_four("out");
  const Json done = run.json();
  for (int card = 0; card < 4; ++card)
    EXPECT_EQ(done.at("cards")[card].at("peak").at("reserved_bytes"),
              document.at("cards")[card].at("needed_bytes"))
        << card;
}

TEST_F(TrainTeams, ASpuriousFailureOnAnyCardChangesNothing) {
  const std::string expected = weights_of(on_four("plain"));
  for (int card = 0; card < 4; ++card)
    for (const char* when :
         {"oom@3", "oom@40", "oom@step=2:phase=data", "oom@step=2:phase=forward",
          "oom@step=3:phase=backward", "oom@step=2:phase=optimizer", "oom@step=6:phase=eval"}) {
      const std::string injection = std::string(when) + ":card=" + std::to_string(card);
      SCOPED_TRACE(injection);
      const Outcome outcome = on_four("out", {"spill=off", "--inject", injection});
      EXPECT_EQ(weights_of(outcome), expected);
      EXPECT_THAT(events_of(outcome), Contains("oom"));
      for (const Json document = outcome.json(); const Json& event : document.at("events")) {
        if (event.at("kind") == "oom") {
          EXPECT_EQ(event.at("device"), "sim:" + std::to_string(card));
        }
      }
      fs::remove_all(world_.path("out"));
    }
}

TEST_F(TrainTeams, MemoryBendsOnAnyCard) {
  const std::string expected = weights_of(on_four("plain"));
  for (int card = 0; card < 4; ++card) {
    const Outcome outcome =
        on_four("out", {"--inject", "oom@step=2:phase=backward:card=" + std::to_string(card)});
    EXPECT_EQ(weights_of(outcome), expected);
    EXPECT_THAT(events_of(outcome), Contains("spill"));
    fs::remove_all(world_.path("out"));
  }
}

TEST_F(TrainTeams, ALastingFailureOnOneCardMakesThePartsOfAllSmaller) {
  for (const int card : {0, 3}) {
    const Outcome outcome = on_four(
        "out", {"min_batch_size=1", "--inject", "oom@150:lasting:card=" + std::to_string(card)});
    const std::string weights = weights_of(outcome);
    EXPECT_THAT(events_of(outcome), Contains(::testing::AnyOf("shrink", "technique")));
    const std::string plans = outcome.json().at("plan_schedule").get<std::string>();
    EXPECT_EQ(weights, weights_of(on_four("clean", {"plan_schedule=" + plans})));
    fs::remove_all(world_.path("out"));
    fs::remove_all(world_.path("clean"));
  }
}

TEST_F(TrainTeams, ALastingFailureWhileBuildingNamesTheCard) {
  const Outcome outcome = on_four("out", {"--inject", "oom@2:lasting:card=2"});
  EXPECT_EQ(outcome.exit_code, 76);
  EXPECT_THAT(outcome.err, HasSubstr("Out of memory on sim:2"));
  EXPECT_FALSE(fs::exists(world_.path("out")));
}

TEST_F(TrainTeams, GoOnOnOneCardAndOnFour) {
  static_cast<void>(weights_of(on_one("plain")));
  const auto running = world_.start_training(arguments("begun", kFour + Arguments{"steps=100000"}));
  ASSERT_TRUE(
      running->until([&](const Running&) { return !world_.metrics("begun", "loss").empty(); }));
  running->signal(SIGINT);
  const Outcome stopped = running->wait();
  ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
  const auto steps = stopped.json().at("steps").get<int>();
  const std::string more = "steps=" + std::to_string(steps + 3);
  for (const Arguments& team :
       {Arguments{"replicas=1", "stages=1"}, kFour, Arguments{"replicas=4", "stages=1"}}) {
    SCOPED_TRACE(join({team.begin(), team.end()}, " "));
    fs::remove_all(world_.path("there"));
    fs::copy(world_.path("begun"), world_.path("there"), fs::copy_options::recursive);
    const Outcome outcome = world_.train(arguments("there", team + Arguments{"--resume", more}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json().at("resumed_from"), steps);
    EXPECT_EQ(outcome.json().at("steps"), steps + 3);
    EXPECT_EQ(outcome.json().at("cards").size(), team.front() == "replicas=1" ? 1U : 4U);
    if (!fs::exists(world_.path("first")))
      fs::copy(world_.path("there"), world_.path("first"), fs::copy_options::recursive);
    expect_losses_of("there", "first");
  }
}

// Of a linear probe nothing of the first stage is trained.
TEST_F(TrainTeams, TrainANewHeadOnTheLastCard) {
  for (const auto& [model, precision] :
       {std::pair{"model=linear_probe", "fp16=false"}, std::pair{"model=linear_probe", "fp16=true"},
        std::pair{"model=lora", "fp16=false"}}) {
    SCOPED_TRACE(std::string(model) + " " + precision);
    const Arguments both{model,
                         "model.config=" + world_.vit(),
                         "dataset=flowers102",
                         "data_dir=" + world_.flowers102(),
                         "batch_size=8",
                         "steps=3",
                         "num_workers=0",
                         precision,
                         "--gpus",
                         "sim:4x64MiB",
                         "--json"};
    const Outcome one = world_.train(both + Arguments{"out=" + world_.path("one")});
    const Outcome four = world_.train(both + kFour + Arguments{"out=" + world_.path("four")});
    ASSERT_EQ(one.exit_code, 0) << one.err;
    ASSERT_EQ(four.exit_code, 0) << four.err;
    const auto right = losses("one"), found = losses("four");
    ASSERT_EQ(found.size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 1e-3 * right[i]);
    for (const char* out : {"one", "four"}) fs::remove_all(world_.path(out));
  }
}

TEST_F(TrainTeams, StagesOfARunThatWentOnFromOneCardWorkAtTheSameTime) {
  ASSERT_EQ(on_one("out", {"steps=2"}).exit_code, 0);
  const Outcome outcome = world_.train(arguments("out", {"--resume", "stages=2"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("plan").at("micro_batch"), 4) << "of 8 rows";
  const Outcome back = world_.train(arguments("out", {"--resume", "split=1,1", "steps=7"}));
  ASSERT_EQ(back.exit_code, 0) << back.err;
  const Outcome alone = world_.train(arguments("out", {"--resume", "stages=1", "steps=8"}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_EQ(alone.json().at("cards").size(), 1U);
  const Outcome again = world_.train(arguments("out", {"--resume", "steps=9"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json().at("cards").size(), 1U);
}

TEST_F(TrainTeams, SaveTheFilesOfOneCard) {
  const std::vector<Arguments> kinds{
      {"model=full"},
      {"model=lora", "model.lora_targets=all-linear"},
      {"model=linear_probe"},
      {"model=linear_probe", "fp16=true"},
      {"model=lora", "model.lora_targets=transformer.h.1.attn.c_attn"},
      {"model=lora", "model.lora_targets=lm_head"},  // tied to the embedding
      {"model=lora", "quantize=4bit"}};
  for (const Arguments& kind : kinds) {
    SCOPED_TRACE(join({kind.begin(), kind.end()}, " "));
    for (const char* out : {"one", "four"}) {
      const Outcome outcome = out == std::string("one") ? on_one(out, kind) : on_four(out, kind);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    }
    expect_losses_of("four", "one");
    EXPECT_EQ(files_of("four"), files_of("one"));
    for (const char* out : {"one", "four"}) fs::remove_all(world_.path(out));
  }
}

TEST_F(TrainTeams, RefuseWhatCannotBe) {
  const auto expect = [&](const Arguments& arguments, const std::string& words) {
    const Outcome outcome = world_.train(this->arguments("out", arguments));
    EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  };
  expect({"stages=3"}, "at most one for each of the 2 layers");
  expect({"split=1,2"}, "add up to the 2 layers");
  expect({"split=1,1", "stages=1"}, "stages=1");
  expect({"split=2,x"}, "numbers of layers");
  expect({"replicas=5"}, "5 cards for replicas=5 stages=1");
  expect({"replicas=2", "device=sim:1"}, "auto for 2 cards");
  expect({"replicas=2", "allow_cpu=true"}, "a run on one card");
  expect({"pipeline=gpipe"}, "stages=2 or more");
  expect({"replicas=2", "--inject", "oom@1:card=x"}, "card=N");
  Arguments on_cpu = arguments("out", {"replicas=2"});
  std::replace(on_cpu.begin(), on_cpu.end(), std::string("sim:4x64MiB"), std::string("cpu"));
  EXPECT_THAT(world_.train(on_cpu).err, HasSubstr("2 cards"));
}

}  // namespace
}  // namespace headroom::testing
