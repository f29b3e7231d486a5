// `headroom estimate` by formula: --quick, and models that cannot run.
#include <gmock/gmock.h>

#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using testing::Arguments;
using testing::estimate;
using ::testing::HasSubstr;
using testing::keys_of;
using ::testing::Not;
using testing::Outcome;
using testing::WithEngine;
using testing::World;

TEST(EstimateCommand, AnswersByFormulaWithTheSameKeys) {
  const Arguments asked{"gpt2", "--batch", "2", "--gpus", "RTX 4090", "--json"};
  Arguments quick = asked;
  quick.emplace_back("--quick");
  const Json by_run = estimate(asked).json(), by_formula = estimate(quick, World()).json();
  EXPECT_EQ(by_formula.at("method"), "formula");
  for (const char* part : {"peak", "at_peak", "settings", "device"})
    EXPECT_EQ(keys_of(by_formula.at(part)), keys_of(by_run.at(part))) << part;
  EXPECT_EQ(by_formula.at("settings"), by_run.at("settings"));
  EXPECT_EQ(by_formula.at("device"), by_run.at("device"));
}

// The rule has 16 bytes a parameter of Adam in float32, and nothing but the activations besides.
TEST(EstimateCommand, GivesTheRuleOfThumbBesideTheFormula) {
  const Json document = estimate({"gpt2", "--quick", "--json"}, World()).json();
  const Json& rule = document.at("rule");
  const auto part = [&](const char* key) { return rule.at(key).get<std::int64_t>(); };
  EXPECT_EQ(part("weights_bytes") + part("gradients_bytes") + part("optimizer_bytes"),
            16 * document.at("model").at("parameters").get<std::int64_t>());
  EXPECT_EQ(part("total_bytes"), part("weights_bytes") + part("gradients_bytes") +
                                     part("optimizer_bytes") + part("activations_bytes"));
  EXPECT_THAT(estimate({"gpt2", "--quick"}, World()).out, HasSubstr("\nBy the rule of thumb "));
}

TEST(EstimateCommand, PricesWhatCannotRunAndSaysSo) {
  const Outcome outcome = estimate({"llama-3.1-8b", "--lora-rank", "8", "--offload", "parameters",
                                    "--gpus", "RTX 4090", "--json"},
                                   World());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("method"), "formula");
  EXPECT_THAT(outcome.json().at("notes").dump(), HasSubstr("run this yet: --offload parameters"));
}

// --advice beside --quick was taken and not answered, and what cannot run got none at all.
TEST(EstimateCommand, GivesAdviceByFormulaToo) {
  const Arguments asked{"gpt2",   "--batch",     "16",      "--seq",   "1024",
                        "--gpus", "sim:1x12GiB", "--quick", "--advice"};
  const Outcome told = estimate(asked, World());
  EXPECT_EQ(told.exit_code, 2);
  EXPECT_THAT(told.out, HasSubstr("What would help, best first, by formula\n  --"));
  const Json document =
      estimate({"llama-3.1-8b", "--batch", "16", "--seq", "4096", "--lora-rank", "8", "--offload",
                "parameters", "--gpus", "sim:1x12GiB", "--json"},
               World())
          .json();
  ASSERT_FALSE(document.at("advice").empty());
  EXPECT_EQ(keys_of(document.at("advice").at(0)),
            (std::vector<std::string>{"change", "saves_bytes", "time_factor", "changes_training",
                                      "peak_reserved_bytes", "peak_process_bytes",
                                      "saves_process_bytes", "fits", "method", "can_run"}));
}

TEST(EstimateCommand, GivesEachOfSeveralCardsByFormulaToo) {
  const Json document =
      estimate({"gpt2", "--gpus", "sim:1x24GiB,1x2GiB", "--quick", "--json"}, World()).json();
  ASSERT_EQ(document.at("devices").size(), 2);
  EXPECT_EQ(document.at("devices").at(0).at("fits"), true);
  EXPECT_EQ(document.at("devices").at(1).at("fits"), false);
  EXPECT_EQ(document.at("device").at("total_bytes"), 2LL << 30);
}

TEST(EstimateCommand, NotesTheOptionsThatAFormulaIgnores) {
  const auto notes = [](Arguments arguments) {
    arguments.insert(arguments.begin(), {"gpt2", "--quick", "--json"});
    return estimate(arguments, World()).json().at("notes").dump();
  };
  EXPECT_THAT(notes({"--rules", "cpu"}), HasSubstr("--rules change nothing"));
  EXPECT_THAT(notes({"--allocator", "expandable_segments:True"}), HasSubstr("--allocator"));
  EXPECT_THAT(notes({}), Not(HasSubstr("change nothing")));
}

// It wrote none, and ended with 0.
TEST(EstimateCommand, WritesNoTraceOfAFormula) {
  const World world;
  const Outcome outcome =
      estimate({"gpt2", "--quick", "--trace", world.path("step.hrtrace")}, world);
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("--trace"));
}

// It was the first card's, whichever the answer was of. Only a card of a known chip has workspaces.
TEST(EstimateCommand, WritesTheTraceOfTheCardItAnswersFor) {
  const WithEngine world;
  const std::string trace = world.path("step.hrtrace");
  const Json document =
      estimate({"gpt2", "--gpus", "sim:1x80GiB,1xRTX4090", "--trace", trace, "--json"}, world)
          .json();
  ASSERT_GT(document.at("at_peak").at("workspace_bytes").get<std::int64_t>(), 0);
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), document.at("peak").at("allocated_bytes"));
}

}  // namespace
}  // namespace headroom
