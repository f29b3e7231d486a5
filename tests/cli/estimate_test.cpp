// `headroom estimate` and `headroom fit` as processes: headroom, which becomes headroom-engine.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include "tests/cli/headroom_process.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;
using testing::World;

// A world with the LibTorch that headroom-engine needs.
struct WithEngine : World {
  WithEngine() { set("HEADROOM_TORCH", HEADROOM_TORCH_DIR); }
};

Outcome estimate(Arguments arguments, const World& world = WithEngine()) {
  arguments.insert(arguments.begin(), "estimate");
  return world.headroom(arguments);
}

Outcome fit(Arguments arguments, const World& world = WithEngine()) {
  arguments.insert(arguments.begin(), "fit");
  return world.headroom(arguments);
}

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(EstimateCommand, SaysAllThatTheContractHas) {
  const Outcome outcome = estimate({"gpt2", "--batch", "2", "--gpus", "RTX 4090", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json document = outcome.json();
  EXPECT_THAT(keys_of(document),
              ::testing::IsSupersetOf({"schema", "method", "model", "settings", "device", "peak",
                                       "at_peak", "by_module", "per_step", "fits", "spare_bytes",
                                       "advice", "took_s"}));
  EXPECT_EQ(document.at("method"), "dry-run");
  EXPECT_EQ(document.at("model").at("parameters"), 124439808);
  EXPECT_EQ(document.at("device").at("name"), "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(document.at("settings").at("seq"), 512);
  EXPECT_EQ(document.at("settings").at("task"), "causal-lm");
  EXPECT_EQ(document.at("fits"), true);
}

TEST(EstimateCommand, TakesThePeakApartToTheByte) {
  const Json document = estimate({"bert-base", "--optimizer-impl", "foreach", "--json"}).json();
  const Json& parts = document.at("at_peak");
  const std::int64_t sum = std::accumulate(
      parts.begin(), parts.end(), std::int64_t{0},
      [](std::int64_t so_far, const Json& part) { return so_far + part.get<std::int64_t>(); });
  EXPECT_EQ(sum, document.at("peak").at("allocated_bytes").get<std::int64_t>());
}

TEST(EstimateCommand, EndsWith2WhereItDoesNotFit) {
  const Outcome outcome = estimate({"gpt2", "--batch", "16", "--gpus", "sim:1x8GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  const Json document = outcome.json();
  EXPECT_EQ(document.at("fits"), false);
  EXPECT_LT(document.at("spare_bytes").get<std::int64_t>(), 0);
}

TEST(EstimateCommand, HasNoVerdictWithoutACard) {
  const Outcome outcome = estimate({"gpt2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.json().at("device").is_null());
  EXPECT_TRUE(outcome.json().at("fits").is_null());
}

TEST(EstimateCommand, AnswersForTheTightestOfSeveralCards) {
  const Outcome outcome = estimate({"gpt2", "--gpus", "sim:1x24GiB,1x2GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  const Json document = outcome.json();
  EXPECT_EQ(document.at("device").at("total_bytes"), 2LL << 30);
  ASSERT_EQ(document.at("devices").size(), 2);
  EXPECT_EQ(document.at("devices").at(0).at("fits"), true);
  EXPECT_EQ(document.at("devices").at(1).at("fits"), false);
}

TEST(EstimateCommand, DrawsTheCardForPeople) {
  const Outcome outcome = estimate({"gpt2", "--batch", "2", "--gpus", "RTX 4090"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(StartsWith("gpt2, 124.4 M parameters\n"
                               "causal-lm, train, batch 2 x 512 tokens, float32, fused adamw, "
                               "sdpa\n\n"
                               "NVIDIA GeForce RTX 4090, 23.99 GiB (23.64 GiB usable): fits, "),
                    HasSubstr("Peak in backward of step 2\n  P parameters "),
                    HasSubstr("transformer.h.*  (each of 12)\n")));
}

TEST(EstimateCommand, TakesAFileAndSaysWhatItLeftOut) {
  const WithEngine world;
  std::ofstream(world.path("config.json")) << R"({"model_type": "gpt2", "n_layer": 2})";
  const Json document = estimate({world.path("config.json"), "--json"}, world).json();
  EXPECT_THAT(document.at("model").at("defaulted").dump(),
              AllOf(HasSubstr("n_embd = 768"), Not(HasSubstr("n_layer"))));
}

TEST(EstimateCommand, WritesATraceThatReplays) {
  const WithEngine world;
  const std::string trace = world.path("step.hrtrace");
  const Json document = estimate({"gpt2", "--trace", trace, "--json"}, world).json();
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), document.at("peak").at("allocated_bytes"));
}

TEST(EstimateCommand, NamesTheNearestOfWhatItDoesNotKnow) {
  EXPECT_EQ(estimate({"lama-3.1-8b"}).exit_code, 64);
  EXPECT_THAT(estimate({"lama-3.1-8b"}).err, HasSubstr("try llama-3.1-8b"));
  EXPECT_THAT(estimate({"gpt2", "--optimizer", "adamv"}).err, HasSubstr("try adam"));
  EXPECT_EQ(estimate({"gpt2", "--batch", "0"}).exit_code, 64);
  EXPECT_EQ(estimate({"gpt2", "--gpus", "RTX 409"}).exit_code, 64);
}

TEST(EstimateCommand, RefusesAModelTypeItDoesNotBuildWith65) {
  const WithEngine world;
  std::ofstream(world.path("config.json")) << R"({"model_type": "mamba"})";
  const Outcome outcome = estimate({world.path("config.json")}, world);
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_THAT(outcome.err, HasSubstr("mamba"));
}

TEST(EstimateCommand, FollowsTheCpusRulesIfAsked) {
  const Arguments eager{"bert-base", "--batch", "8", "--attention", "eager", "--json"};
  Arguments cpu = eager;
  cpu.insert(cpu.end(), {"--rules", "cpu"});
  EXPECT_GT(estimate(cpu).json().at("peak").at("active_bytes").get<std::int64_t>(),
            estimate(eager).json().at("peak").at("active_bytes").get<std::int64_t>());
}

TEST(FitCommand, ProbesItsAnswerAndTheNext) {
  const Outcome outcome = fit({"gpt2", "--seq", "1024", "--gpus", "sim:1x12GiB", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json document = outcome.json();
  const auto most = document.at("max_batch").get<std::int64_t>();
  EXPECT_FALSE(document.at("capped").get<bool>());
  EXPECT_LE(document.at("probes").size(), 6);
  std::map<std::int64_t, bool> fits;
  for (const Json& probe : document.at("probes"))
    fits[probe.at("batch").get<std::int64_t>()] = probe.at("fits").get<bool>();
  EXPECT_TRUE(fits.at(most));
  EXPECT_FALSE(fits.at(most + 1));
  EXPECT_EQ(document.at("recommended_batch").get<std::int64_t>(),
            std::max<std::int64_t>(1, static_cast<std::int64_t>(0.9 * static_cast<double>(most))));
}

TEST(FitCommand, SaysNothingFitsWith2) {
  const Outcome outcome = fit({"gpt2-xl", "--gpus", "sim:1x8GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(outcome.json().at("max_batch").is_null());
}

TEST(FitCommand, WantsACard) {
  const Outcome outcome = fit({"gpt2"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("a card to fit into"));
}

TEST(FitCommand, LooksForTheLongestSequenceToo) {
  const Outcome outcome =
      fit({"gpt2", "--batch", "1", "--over", "seq", "--gpus", "sim:1x24GiB", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("max_seq"), 1024) << "GPT-2 has no more positions";
}

}  // namespace
}  // namespace headroom
