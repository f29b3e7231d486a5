// `headroom estimate` as a process: headroom, which becomes headroom-engine.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
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

TEST(EstimateCommand, WritesATraceThatReplays) {
  const WithEngine world;
  const std::string trace = world.path("step.hrtrace");
  const Json document = estimate({"gpt2", "--trace", trace, "--json"}, world).json();
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), document.at("peak").at("allocated_bytes"));
}

TEST(EstimateCommand, WritesAPageWithTheSamePeak) {
  const WithEngine world;
  const std::string page = world.path("step.html");
  const Json document =
      estimate({"gpt2", "--batch", "64", "--html", page, "--json", "--gpus", "RTX 4090"}, world)
          .json();
  const std::string text = read_input(page);
  const Json& peak = document.at("peak");
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(R"("allocated_bytes":)" + peak.at("allocated_bytes").dump()));
  EXPECT_TRUE(has(R"("reserved_bytes":)" + peak.at("reserved_bytes").dump()));
  EXPECT_TRUE(has("--checkpointing full needs")) << "what would have fitted";
  EXPECT_TRUE(has("too much")) << "the verdict";
  EXPECT_EQ(estimate({"gpt2", "--quick", "--html", page}, world).exit_code, 64);
}

std::int64_t capacity_of(const std::string& page) {
  const std::string text = read_input(page), key = R"("capacity_bytes":)";
  return std::stoll(text.substr(text.find(key) + key.size(), 20));
}

// The run is one without a limit; the page draws the card beside it, and so does a later report.
TEST(EstimateCommand, ThePageOfARunThatDoesNotFitKnowsTheCard) {
  const WithEngine world;
  const std::string page = world.path("a.html"), trace = world.path("a.hrtrace"),
                    later = world.path("b.html");
  const Json document = estimate({"gpt2", "--batch", "64", "--html", page, "--trace", trace,
                                  "--json", "--gpus", "RTX 4090"},
                                 world)
                            .json();
  const std::int64_t usable = document.at("device").at("usable_bytes").get<std::int64_t>();
  EXPECT_LT(capacity_of(page), document.at("peak").at("reserved_bytes").get<std::int64_t>());
  EXPECT_LT(capacity_of(page), usable) << "without the CUDA context";
  EXPECT_GT(capacity_of(page), usable * 9 / 10);
  const Outcome report = world.headroom({"trace", "report", trace, "--out", later});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_EQ(capacity_of(later), capacity_of(page));
  EXPECT_EQ(world.headroom({"trace", "replay", trace, "--json"}).json().at("allocated").at("peak"),
            document.at("peak").at("allocated_bytes"));
}

// Other settings lay out segments in another way; the trace and the page replay with those of the
// run.
TEST(EstimateCommand, TheTraceKnowsTheAllocatorsSettings) {
  const WithEngine world;
  const std::string page = world.path("a.html"), trace = world.path("a.hrtrace");
  const Json peak = estimate({"gpt2", "--batch", "4", "--allocator", "expandable_segments:True",
                              "--html", page, "--trace", trace, "--json"},
                             world)
                        .json()
                        .at("peak");
  const std::string text = read_input(page);
  for (const char* figure : {"allocated_bytes", "reserved_bytes"}) {
    EXPECT_NE(text.find("\"" + std::string(figure) + "\":" + peak.at(figure).dump()),
              std::string::npos)
        << figure;
  }
  const Json replayed = world.headroom({"trace", "replay", trace, "--json"}).json();
  EXPECT_EQ(replayed.at("allocated").at("peak"), peak.at("allocated_bytes"));
  EXPECT_EQ(replayed.at("reserved").at("peak"), peak.at("reserved_bytes"));
}

TEST(EstimateCommand, LooksAtItsOutputsBeforeTheRun) {
  const WithEngine world;
  const std::string page = world.path("step.html");
  EXPECT_EQ(estimate({"gpt2", "--html", "/nowhere/page.html"}, world).exit_code, 73);
  EXPECT_EQ(estimate({"gpt2", "--html", world.path("")}, world).exit_code, 73) << "a folder";
  EXPECT_EQ(estimate({"gpt2", "--html", "-"}, world).exit_code, 64);
  const Outcome twice = estimate({"gpt2", "--html", page, "--trace", page}, world);
  EXPECT_EQ(twice.exit_code, 64);
  EXPECT_THAT(twice.err, HasSubstr("step.html twice"));
  EXPECT_FALSE(std::filesystem::exists(page));
}

// The sum of a difference's parts of each category.
std::map<std::string, std::int64_t> by_category(const Json& difference) {
  std::map<std::string, std::int64_t> sums;
  for (const Json& part : difference.at("parts"))
    sums[part.at("category").get<std::string>()] += part.at("bytes").get<std::int64_t>();
  return sums;
}

// Each line that explains a difference holds against the two dry runs that it compares.
TEST(EstimateCommand, TracesDifferByWhatTheTwoDryRunsDiffer) {
  const WithEngine world;
  const std::vector<std::vector<std::string>> changes{{"--checkpointing", "full"},
                                                      {"--batch", "3"}};
  const std::string a = world.path("a.hrtrace"), b = world.path("b.hrtrace");
  const Json before = estimate({"gpt2", "--trace", a, "--json"}, world).json();
  for (std::vector<std::string> words : changes) {
    words.insert(words.begin(), "gpt2");
    words.insert(words.end(), {"--trace", b, "--json"});
    const Json after = estimate(words, world).json();
    const Json difference = world.headroom({"trace", "diff", a, b, "--json"}).json();
    EXPECT_EQ(difference.at("peak_difference_bytes").get<std::int64_t>(),
              after.at("peak").at("allocated_bytes").get<std::int64_t>() -
                  before.at("peak").at("allocated_bytes").get<std::int64_t>());
    const auto sums = by_category(difference);
    for (const auto& [key, bytes] : before.at("at_peak").items()) {
      const std::string category = key.substr(0, key.size() - std::string("_bytes").size());
      const auto found = sums.find(category);
      EXPECT_EQ(found == sums.end() ? 0 : found->second,
                after.at("at_peak").at(key).get<std::int64_t>() - bytes.get<std::int64_t>())
          << words[1] << ", " << category;
    }
    EXPECT_THAT(difference.at("reasons").dump(), HasSubstr(words[1].substr(2) + ": "));
  }
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
TEST(EstimateCommand, NamesATechniqueThatIsEnoughButCannotRunYet) {
  const Outcome told = estimate({"mixtral-8x7b", "--gpus", "H100 80GB"});
  EXPECT_EQ(told.exit_code, 2);
  EXPECT_THAT(told.out,
              HasSubstr("What would be enough, by formula; Headroom cannot run it yet\n"));
  const Json document = estimate({"mixtral-8x7b", "--gpus", "H100 80GB", "--json"}).json();
  Json enough;
  for (const Json& one : document.at("advice"))
    if (one.at("fits") == true) enough.push_back(one);
  ASSERT_FALSE(enough.empty());
  EXPECT_EQ(enough.at(0).at("method"), "formula");
  EXPECT_EQ(enough.at(0).at("can_run"), false);
  EXPECT_THAT(enough.at(0).at("change").get<std::string>(),
              AllOf(HasSubstr("--quantize 4bit"), HasSubstr("--lora-rank 8")));
  // A proposal fits when it is applied.
  Arguments applied{"mixtral-8x7b", "--gpus", "H100 80GB", "--json"};
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
