// `headroom estimate` as a process: headroom, which becomes headroom-engine.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "headroom/base/file.h"
#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::ContainsRegex;
using testing::estimate;
using ::testing::HasSubstr;
using testing::keys_of;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;
using testing::WithEngine;
using testing::World;

TEST(EstimateCommand, HasEveryKeyOfTheContract) {
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
  const std::string told = estimate({"gpt2", "--gpus", "sim:1x24GiB,1x2GiB"}).out;
  EXPECT_THAT(told, ContainsRegex("On each card\n[^\n]*\n[^\n]*24.00 GiB +[0-9.]+ GiB +fits, "));
}

// `sim:8x...` printed eight equal lines; a second --gpus took the place of the first.
TEST(EstimateCommand, HasOneLineForEqualCardsAndTakesSeveralGpus) {
  const Arguments asked{"gpt2", "--gpus", "sim:8x24GiB", "--gpus", "RTX 4090", "--quick"};
  const std::string told = estimate(asked, World()).out;
  EXPECT_THAT(told, AllOf(HasSubstr("8 x Simulated GPU 24.00 GiB"), HasSubstr("RTX 4090")));
  const std::size_t first = told.find("Simulated GPU 24.00 GiB");
  EXPECT_GT(told.find("Simulated GPU 24.00 GiB", first + 1), told.find("Without")) << told;
  EXPECT_THAT(told,
              HasSubstr("Without the CUDA context, whose size on that card is unknown: Simulated"))
      << "the other figure has it";
  Arguments in_json = asked;
  in_json.emplace_back("--json");
  const Json devices = estimate(in_json, World()).json().at("devices");
  ASSERT_EQ(devices.size(), 9);
  EXPECT_EQ(keys_of(devices.at(8)),
            (std::vector<std::string>{"name", "total_bytes", "peak", "fits", "spare_bytes"}));
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
  EXPECT_THAT(estimate({world.path("config.json")}, world).out,
              AllOf(HasSubstr("transformers' defaults: "), HasSubstr("n_head")));
  EXPECT_THAT(estimate({"gpt2"}, world).out, Not(HasSubstr("transformers' defaults")));
}

TEST(EstimateCommand, SuggestsTheNearestNameForAnUnknownOne) {
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
  std::ofstream(world.path("config.json")) << R"({"model_type": "gemma3"})";
  const std::string told = estimate({world.path("config.json")}, world).err;
  EXPECT_THAT(told,
              AllOf(HasSubstr("try gemma if that is meant, or a function that returns the model"),
                    HasSubstr("train.py:make_step")));
}

// "this is a bug in Headroom: ... Kernel size can't be greater than actual input size", and 70.
TEST(EstimateCommand, RefusesImagesThatAreSmallerThanTheModelsSteps) {
  const WithEngine world;
  std::ofstream(world.path("config.json")) << R"({"model_type": "convnext", "image_size": 31})";
  const Outcome small = estimate({world.path("config.json")}, world);
  EXPECT_EQ(small.exit_code, 65);
  EXPECT_THAT(small.err, HasSubstr("at least 32 pixels a side"));
  EXPECT_EQ(estimate({world.path("config.json"), "--image", "31"}, world).exit_code, 64);
  EXPECT_EQ(estimate({world.path("config.json"), "--image", "32"}, world).exit_code, 0);
}

TEST(EstimateCommand, FollowsTheCpusRulesIfAsked) {
  const Arguments eager{"bert-base", "--batch", "8", "--attention", "eager", "--json"};
  Arguments cpu = eager;
  cpu.insert(cpu.end(), {"--rules", "cpu"});
  EXPECT_GT(estimate(cpu).json().at("peak").at("active_bytes").get<std::int64_t>(),
            estimate(eager).json().at("peak").at("active_bytes").get<std::int64_t>());
}

// ---- What would help ----

std::int64_t bytes_at(const Json& json, const char* key) {
  return json.at(key).get<std::int64_t>();
}

// The headline counted the process, 53.56 GiB too much, and the advice the allocator: "saves 53.48
// GiB, ... fits".
TEST(EstimateCommand, GivesVerdictAndAdviceInOneMeasure) {
  const Arguments asked{"llama-3.1-8b", "--batch", "2",      "--seq",   "2048",
                        "--dtype",      "bf16",    "--gpus", "RTX 4090"};
  const Outcome told = estimate(asked);
  EXPECT_EQ(told.exit_code, 2);
  EXPECT_THAT(told.out, ContainsRegex("\n    needs [0-9.]+ GiB \\([0-9.]+ GiB less\\), [0-9.]+ x "
                                      "the time: (fits|still [0-9.]+ GiB too much)"));
  Arguments in_json = asked;
  in_json.emplace_back("--json");
  const Json document = estimate(in_json).json();
  const std::int64_t usable = bytes_at(document.at("device"), "usable_bytes");
  const std::int64_t now = bytes_at(document.at("peak"), "process_bytes");
  EXPECT_EQ(bytes_at(document, "spare_bytes"), usable - now);
  ASSERT_FALSE(document.at("advice").empty());
  for (const Json& one : document.at("advice")) {
    if (one.at("method") != "dry-run") continue;
    EXPECT_EQ(bytes_at(one, "peak_process_bytes"), now - bytes_at(one, "saves_process_bytes"));
    EXPECT_EQ(one.at("fits"), bytes_at(one, "peak_process_bytes") <= usable) << one;
  }
}

// Three lines, all "still too much"; QLoRA fits, said the same program.
TEST(EstimateCommand, NamesLoraOverQuantisedWeightsWhereNothingLighterFits) {
  const Json document = estimate({"llama-3.1-8b", "--gpus", "sim:1x12GiB", "--json"}).json();
  Json enough;
  for (const Json& one : document.at("advice"))
    if (one.at("fits") == true) enough.push_back(one);
  ASSERT_FALSE(enough.empty());
  EXPECT_EQ(enough.at(0).at("method"), "dry-run");
  EXPECT_EQ(enough.at(0).at("can_run"), true);
  EXPECT_THAT(enough.at(0).at("change").get<std::string>(), HasSubstr("--quantize 4bit"));
  // A proposal fits when it is applied.
  Arguments applied{"llama-3.1-8b", "--gpus", "sim:1x12GiB", "--json"};
  std::istringstream words(enough.at(0).at("change").get<std::string>());
  for (std::string word; words >> word;) applied.push_back(word);
  const Outcome then = estimate(applied);
  EXPECT_EQ(then.exit_code, 0) << then.err;
  EXPECT_EQ(bytes_at(then.json().at("peak"), "process_bytes"),
            bytes_at(enough.at(0), "peak_process_bytes"));
}

// ---- Options without effect, and absurd sizes ----

TEST(EstimateCommand, RefusesOptionsThatMeanNothingForTheModel) {
  for (const auto& [arguments, why] : std::vector<std::pair<Arguments, const char*>>{
           {{"gpt2", "--image", "224"}, "--image means nothing for gpt2, which takes tokens"},
           {{"resnet50", "--seq", "10"}, "--seq means nothing for resnet50, which takes images"},
           {{"gpt2", "--zero", "3"}, "--zero means nothing for gpt2 without --world"}}) {
    const Outcome outcome = estimate(arguments);
    EXPECT_EQ(outcome.exit_code, 64) << why;
    EXPECT_THAT(outcome.err, HasSubstr(why));
  }
}

// hidden_size 1000000000 was "a bug in Headroom", 70.
TEST(EstimateCommand, RefusesAbsurdFilesWith65NamingTheKey) {
  const WithEngine world;
  for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size"}) {
    std::ofstream(world.path("config.json"))
        << R"({"model_type": "llama", ")" << key << R"(": 1000000000})";
    const Outcome outcome = estimate({world.path("config.json")}, world);
    EXPECT_EQ(outcome.exit_code, 65) << key;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("`" + std::string(key) + "`"), HasSubstr("at most")));
  }
}

TEST(EstimateCommand, NamesThePrecisionThatAFileSaysAndTheOptionForIt) {
  const WithEngine world;
  std::ofstream(world.path("config.json"))
      << R"({"model_type": "gpt2", "n_layer": 1, "torch_dtype": "bfloat16",
             "quantization_config": {"load_in_4bit": true}})";
  const auto notes = [&](Arguments more) {
    more.insert(more.begin(), {world.path("config.json"), "--json"});
    return estimate(more, world).json().at("notes").dump();
  };
  EXPECT_THAT(notes({}), AllOf(HasSubstr("--dtype bfloat16"), HasSubstr("--quantize 4bit")));
  EXPECT_THAT(notes({"--quick"}), AllOf(HasSubstr("--dtype bfloat16"), HasSubstr("4bit")));
  EXPECT_EQ(notes({"--dtype", "bf16", "--quantize", "4bit", "--lora-rank", "8"}).find("_config"),
            std::string::npos);
}

TEST(EstimateCommand, PrintsTheWholeTableOfTechniquesByImpact) {
  const Json document =
      estimate({"gpt2", "--gpus", "sim:4x24GiB", "--quick", "--techniques", "--json"}, World())
          .json();
  const Json& all = document.at("techniques");
  ASSERT_GE(all.size(), 8);
  EXPECT_THAT(all.dump(), AllOf(HasSubstr("--world 4 --zero 3"), HasSubstr("--quantize 4bit")));
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_GE(all.at(i - 1).at("saves_bytes").get<std::int64_t>(),
              all.at(i).at("saves_bytes").get<std::int64_t>());
}

TEST(EstimateCommand, TakesWhatIsUsableOfARealCard) {
  World world;
  Json busy = testing::card("24GiB");
  busy["used"] = "23GiB";
  world.driver(testing::machine({busy}));
  const Json device = estimate({"gpt2", "--quick", "--json"}, world).json().at("device");
  EXPECT_EQ(device.at("total_bytes"), 24LL << 30);
  EXPECT_LE(device.at("usable_bytes"), 1LL << 30);
}

// ---- Policies ----

// By what was free now, a large card in use counted as the smallest.
TEST(EstimateCommand, ChoosesAVariantByTheSmallestCardsTotal) {
  World world;
  Json busy = testing::card("80GiB");
  busy["used"] = "70GiB";
  world.driver(testing::machine({testing::card("24GiB"), busy}));
  const Outcome outcome = estimate(
      {"gpt2-xl@40GiB,gpt2", "--policy", "variant", "--gpus", "all", "--quick", "--json"}, world);
  ASSERT_THAT(outcome.exit_code, ::testing::AnyOf(0, 2)) << outcome.err;
  EXPECT_EQ(outcome.json().at("model").at("name"), "gpt2");
  EXPECT_THAT(outcome.json().at("notes").dump(), HasSubstr("the smallest card has 24.00 GiB"));
}

TEST(EstimateCommand, LetsARuleOfThumbDecideAndSaysWhy) {
  const auto by = [](const char* policy) {
    return estimate({"gpt2", "--policy", policy, "--gpus", "sim:2x24GiB", "--quick", "--json"},
                    World())
        .json();
  };
  EXPECT_THAT(by("size-table").at("notes").dump(), HasSubstr("below 1 B parameters: 16"));
  EXPECT_GT(by("simple").at("settings").at("batch").get<int>(), 1);
  EXPECT_THAT(by("strategy").at("notes").dump(), HasSubstr("one GPU"));
  const Outcome without = estimate({"gpt2", "--policy", "simple", "--quick"}, World());
  EXPECT_EQ(without.exit_code, 64);
  EXPECT_THAT(without.err, HasSubstr("expected a card"));
}

TEST(EstimateCommand, NamesTheContextOnlyWhereItIsKnown) {
  const auto out = [](const char* card) { return estimate({"gpt2", "--gpus", card}).out; };
  EXPECT_THAT(out("RTX 4090"), HasSubstr("C process"));
  EXPECT_THAT(out("B200"),
              AllOf(HasSubstr("a CUDA context comes on top"), Not(HasSubstr("process  "))));
}

}  // namespace
}  // namespace headroom
