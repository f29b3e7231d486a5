// `headroom plan` as a process, and the `headroom train` command that it prints.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "headroom/edit/shell_words.h"
#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::WithEngine;

class PlanCommand : public ::testing::Test {
 protected:
  [[nodiscard]] Outcome plan(Arguments arguments) const {
    arguments.insert(arguments.begin(), "plan");
    return world_.headroom(arguments);
  }
  // Of a plan that exists.
  [[nodiscard]] Json document(Arguments arguments) const {
    arguments.push_back("--json");
    const Outcome outcome = plan(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  }
  // The printed command, word by word.
  [[nodiscard]] static Arguments words_of(const Json& document) {
    Arguments words = edit::split_words(document.at("command").get<std::string>());
    words.erase(words.begin());  // headroom
    return words;
  }

  WithEngine world_;
};

// As printed, with --dry-run: the same bytes on each card, and it fits.
TEST_F(PlanCommand, PrintsACommandThatNeedsWhatItPredicts) {
  const std::vector<Arguments> questions{
      {"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:2x2GiB"},
      {"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:4x1.4GiB"},
      {"gpt2", "--batch", "6", "--seq", "128", "--gpus", "sim:1x1.5GiB,1x3GiB"},
      {"gpt2", "--batch", "5", "--seq", "64", "--gpus", "sim:3x2GiB", "--dtype", "bfloat16"},
      {"vit-base", "--batch", "8", "--gpus", "sim:2x2.5GiB"},
      {"gpt2", "--batch", "8", "--seq", "64", "--gpus", "RTX 3060"},
      {"t5-small", "--batch", "8", "--seq", "64", "--gpus", "sim:2x1.5GiB"},
      {"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:2x1GiB", "--tune", "any"}};
  for (const Arguments& question : questions) {
    SCOPED_TRACE(::testing::PrintToString(question));
    const Json planned = document(question);
    Arguments command = words_of(planned);
    command.insert(command.end(), {"--dry-run", "--json"});
    const Outcome outcome = world_.headroom(command);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json run = outcome.json();
    const Json& split = planned.at("chosen").at("split");
    ASSERT_EQ(run.at("cards").size(), split.size());
    EXPECT_EQ(run.at("effective_batch"), planned.at("effective_batch"));
    EXPECT_EQ(run.at("plan").at("micro_batch"), planned.at("chosen").at("micro_batch"));
    const Json& predicted = planned.at("predicted").at("peak_reserved_bytes");
    for (std::size_t rank = 0; rank < split.size(); ++rank) {
      const auto card = split[rank].at("gpu").get<std::size_t>();
      EXPECT_EQ(run.at("cards")[rank].at("device"), "sim:" + std::to_string(card));
      EXPECT_EQ(run.at("cards")[rank].at("peak_reserved_bytes"), predicted.at(card));
    }
  }
}

// And it runs so, without a failure.
TEST_F(PlanCommand, PrintsACommandThatTrains) {
  const std::string file = world_.path("small gpt") + ".json";
  std::ofstream(file) << R"({"model_type":"gpt2","n_layer":4,"n_embd":64,"n_head":4,)"
                      << R"("vocab_size":256,"n_positions":64})";
  const Json planned =
      document({file, "--batch", "8", "--seq", "32", "--gpus", "sim:4x640MiB", "--stages", "2"});
  Arguments command = words_of(planned);
  command.insert(command.end(), {"steps=2", "out=" + world_.path("out"), "--json"});
  const Outcome outcome = world_.headroom(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json run = outcome.json();
  for (const Json& event : run.at("events")) EXPECT_EQ(event.at("kind"), "checkpoint");
  const Json& cards = run.at("cards");
  ASSERT_EQ(cards.size(), planned.at("chosen").at("split").size());
  for (std::size_t rank = 0; rank < cards.size(); ++rank)
    EXPECT_EQ(cards[rank].at("peak").at("reserved_bytes"),
              planned.at("predicted").at("peak_reserved_bytes")[rank]);
}

TEST_F(PlanCommand, AnswersAgainWithoutLibTorch) {
  const Arguments question{"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:2x2GiB"};
  const Json first = document(question);
  EXPECT_GT(first.at("dry_runs"), 0);
  world_.set("HEADROOM_TORCH", "/nowhere");
  const Json again = document(question);
  EXPECT_EQ(again.at("dry_runs"), 0);
  EXPECT_EQ(again.at("predicted"), first.at("predicted"));
  EXPECT_EQ(again.at("chosen"), first.at("chosen"));
}

TEST_F(PlanCommand, SaysWhichCardLacksHowMuchAndHowManyWouldDo) {
  const Outcome outcome = plan({"gpt2-xl", "--seq", "128", "--gpus", "sim:2x8GiB"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Does not fit: all weights; GPU "),
                                 HasSubstr("for weights, gradients and optimizer states, and "),
                                 HasSubstr("cards like the largest one would hold it")));
  const Outcome json = plan({"gpt2-xl", "--seq", "128", "--gpus", "sim:2x8GiB", "--json"});
  EXPECT_EQ(json.exit_code, 2);
  EXPECT_TRUE(json.json().at("chosen").is_null());
  // So many do.
  const std::string cards = "sim:" + json.json().at("cards_needed").dump() + "x8GiB";
  EXPECT_EQ(plan({"gpt2-xl", "--seq", "128", "--gpus", cards}).exit_code, 0);
  EXPECT_EQ(plan({"gpt2-xl", "--gpus", "sim:2x64MiB", "--json"}).json().at("cards_needed"), Json());
}

TEST_F(PlanCommand, GoesOnToLighterWaysOnlyIfAsked) {
  const Arguments question{"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:1x2.1GiB"};
  EXPECT_EQ(plan(question).exit_code, 2);
  Arguments any = question;
  any.insert(any.end(), {"--tune", "any"});
  const Json document = this->document(any);
  EXPECT_EQ(document.at("refused_ways").at(0).at("way"), "all weights");
  EXPECT_EQ(document.at("way"), "all weights, optimizer states in 8 bit");
  EXPECT_EQ(document.at("chosen").at("optimizer"), "adamw8bit");
}

TEST_F(PlanCommand, TakesTimesOfTheNearestCardAndSaysWhich) {
  const Arguments question{"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:2x24GiB"};
  EXPECT_EQ(document(question).at("rates").at(0), "RTX 3090");
  Arguments other = question;
  other.insert(other.end(), {"--rates", "RTX 4090"});
  EXPECT_EQ(document(other).at("rates").at(0), "RTX 4090");
  EXPECT_LT(document(other).at("predicted").at("step_s"),
            document(question).at("predicted").at("step_s"));
}

// As `headroom train` does by itself where --gpus names several cards, and with a file.
TEST_F(PlanCommand, IsTakenByATraining) {
  const Arguments question{"gpt2", "--batch", "8", "--seq", "128", "--gpus", "sim:4x1.4GiB"};
  const Json planned = document(question);
  const Json& chosen = planned.at("chosen");
  const std::string file = world_.path("plan.json");
  std::ofstream(file) << chosen;
  const auto trained = [&](const Arguments& more, int exit_code = 0) {
    Arguments words{
        "train",          "model=full",   "model.config=gpt2", "dataset=synthetic",
        "weights=random", "batch_size=4", "seq=128",           "gradient_accumulation_steps=2",
        "--gpus",         "sim:4x1.4GiB", "--dry-run",         "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = world_.headroom(words);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome;
  };
  const std::string plan_file = "plan=" + file;
  for (const Arguments& more :
       {Arguments{}, Arguments{"plan=auto"},
        Arguments{plan_file, "batch_size=8", "gradient_accumulation_steps=1"}}) {
    SCOPED_TRACE(::testing::PrintToString(more));
    const Json run = trained(more).json();
    EXPECT_EQ(run.at("effective_batch"), 8);
    EXPECT_EQ(run.at("plan").at("micro_batch"), chosen.at("micro_batch"));
    ASSERT_EQ(run.at("cards").size(), chosen.at("split").size());
    EXPECT_EQ(run.at("cards")[0].at("peak_reserved_bytes"),
              planned.at("predicted").at("peak_reserved_bytes")[0]);
  }
  EXPECT_EQ(trained({"plan=off"}, 2).json().at("cards").size(), 1);
  EXPECT_EQ(trained({"device=sim:1"}, 2).json().at("cards").size(), 1);
  EXPECT_THAT(trained({plan_file, "batch_size=6", "gradient_accumulation_steps=1"}, 64).err,
              HasSubstr("plan=FILE: expected a plan for 6 rows a step, received 'one for 8'"));
  EXPECT_THAT(trained({"plan=" + world_.path("none")}, 65).err, HasSubstr("none"));
  EXPECT_THAT(trained({"plan=auto", "model.config=gpt2-xl"}, 2).err,
              HasSubstr("no plan fits: GPU "));
}

TEST_F(PlanCommand, ShowsWhatARuleOfThumbChoosesAndLoses) {
  const Arguments question{"gpt2-xl", "--batch",  "8",      "--seq",     "128",
                           "--dtype", "bfloat16", "--gpus", "sim:4x8GiB"};
  const auto by = [&](const char* rule) {
    Arguments all = question;
    all.insert(all.end(), {"--policy", rule, "--json"});
    return plan(all).json();
  };
  const Json strategy = by("strategy");
  EXPECT_TRUE(strategy.at("chosen").is_null());
  EXPECT_EQ(strategy.at("policy").at("decision"), "1.56 B, 1 to 10 B parameters: data parallel");
  EXPECT_THAT(strategy.at("refused_ways")[0].at("why_not").get<std::string>(),
              HasSubstr("GPU 0 needs 11.61 GiB for weights"));
  const Json table = by("size-table");
  EXPECT_EQ(table.at("chosen").at("micro_batch"), 8);
  EXPECT_NEAR(table.at("policy").at("loses_s").get<double>(),
              table.at("predicted").at("step_s").get<double>() -
                  document(question).at("predicted").at("step_s").get<double>(),
              1e-9);
  EXPECT_GT(table.at("policy").at("loses_s"), 0);
}

TEST_F(PlanCommand, RefusesWhatMeansNothingInOneSentence) {
  const auto refused = [&](const Arguments& arguments, const char* words) {
    const Outcome outcome = plan(arguments);
    EXPECT_EQ(outcome.exit_code, 64) << ::testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, HasSubstr(words));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  refused({"gpt2", "--gpus", "sim:2x2GiB", "--zero", "2"}, "--zero");
  refused({"gpt2", "--gpus", "cpu"}, "cards to plan for");
  refused({"resnet18", "--gpus", "sim:2x2GiB", "--tune", "lora"}, "no layers for adapters");
  refused({"gpt2", "--gpus", "sim:2x2GiB", "--quantize", "4bit"}, "--tune lora or any");
  refused({"gpt2", "--gpus", "sim:20x2GiB", "--stages", "13"}, "12 layers");
  refused({"gpt2", "--gpus", "sim:4x2GiB", "--replicas", "4", "--batch", "2"}, "2 rows");
  refused({"gpt2", "--gpus", "sim:2x2GiB", "--tune", "some"}, "full, lora, any");
  refused({"gpt2", "--gpus", "sim:2x2GiB", "--budget", "0"}, "--budget");
  refused({"gpt2", "--gpus", "sim:2x2GiB", "--replicas", "3"}, "3 cards");
  refused({"gpt9", "--gpus", "sim:2x2GiB"}, "gpt2");
}

}  // namespace
}  // namespace headroom
