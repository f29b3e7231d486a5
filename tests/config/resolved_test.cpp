#include "headroom/config/resolved.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/config/training_keys.h"
#include "tests/support/temporary_folder.h"

namespace headroom::config {
namespace {

using namespace headroom::literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Resolved given(const std::vector<std::string>& overrides, const std::string& preset = "default") {
  return resolve(training_keys(), {.preset = preset, .file = {}, .overrides = overrides});
}

// A file "my.yaml" below a folder of its own.
Resolved from_file(const std::string& yaml, const std::vector<std::string>& overrides = {},
                   const std::string& preset = "default") {
  const headroom::testing::TemporaryFolder folder;
  return resolve(training_keys(),
                 {.preset = preset, .file = folder.write("my.yaml", yaml), .overrides = overrides});
}

std::string refusal(const std::string& override) {
  try {
    (void)given({override});
  } catch (const UsageError& error) {
    return error.sentence();
  }
  return "no UsageError";
}

std::string refusal_of_file(const std::string& yaml) {
  try {
    (void)from_file(yaml);
  } catch (const InputError& error) {
    return error.sentence();
  }
  return "no InputError";
}

// ---- Sources ----

TEST(Config, LaterSourcesOverrideEarlierOnes) {
  const std::string yaml = "save_every: 7\nkeep_last: 8\n";
  const Resolved config = from_file(yaml, {"keep_last=9"}, "robust");
  EXPECT_EQ(config.whole("batch_size"), 32);
  EXPECT_TRUE(config.yes("allow_cpu"));
  EXPECT_EQ(config.whole("save_every"), 7);
  EXPECT_EQ(config.whole("keep_last"), 9);
  EXPECT_EQ(config.origin("batch_size"), "default");
  EXPECT_EQ(config.origin("allow_cpu"), "preset robust");
  EXPECT_THAT(config.origin("save_every"), EndsWith("my.yaml:1"));
  EXPECT_EQ(config.origin("keep_last"), "command line");
}

TEST(Config, OfTwoValuesInOneSourceTheLastCounts) {
  EXPECT_EQ(given({"batch_size=1", "training.batch_size=2"}).whole("batch_size"), 2);
  const Resolved config = from_file("training: {batch_size: 1}\nbatch_size: 2\n");
  EXPECT_EQ(config.whole("batch_size"), 2);
}

TEST(Config, AGivenDefaultIsGiven) {
  const Resolved config = given({"batch_size=32"});
  EXPECT_TRUE(config.is_given("batch_size"));
  EXPECT_TRUE(config.is_given("training.batch_size"));
  EXPECT_FALSE(config.is_given("lr"));
}

TEST(Config, AGroupAndKeysInsideItMayStandInOneCommand) {
  const Resolved config =
      given({"model.lora_r=4", "model=lora", "training.model.config=vit-large"});
  EXPECT_EQ(config.text("model"), "lora");
  EXPECT_EQ(config.whole("model.lora_r"), 4);
  EXPECT_EQ(config.text("model.config"), "vit-large");
}

// ---- Files ----

TEST(Config, SectionsOfAFileMayNest) {
  const Resolved config = from_file(
      "dataset: tokens\n"
      "training:\n"
      "  model: {name: full, lora_r: 16}\n"
      "model:\n"
      "  config: gpt2-large\n"
      "model.lora_alpha: 2\n"
      "training.model.lora_dropout: 0.5\n");
  EXPECT_EQ(config.text("dataset"), "tokens");
  EXPECT_EQ(config.text("model"), "full");
  EXPECT_EQ(config.whole("model.lora_r"), 16);
  EXPECT_EQ(config.text("model.config"), "gpt2-large");
  EXPECT_DOUBLE_EQ(config.number("model.lora_alpha"), 2);
  EXPECT_DOUBLE_EQ(config.number("model.lora_dropout"), 0.5);
}

TEST(Config, AFileMayBeJson) {
  const Resolved config = from_file(R"({"training": {"batch_size": 8, "fp16": true}})");
  EXPECT_EQ(config.whole("batch_size"), 8);
  EXPECT_TRUE(config.yes("fp16"));
}

TEST(Config, AnEmptyFileAndEmptySectionsSayNothing) {
  for (const char* empty : {"", "# a comment\n", "---\n", "training:\n", "training: {}\nmodel:\n"})
    EXPECT_FALSE(from_file(empty).is_given("model")) << empty;
}

TEST(Config, AWrongFileIsRefusedWithItsLine) {
  EXPECT_THAT(refusal_of_file("lr: 1\nbatchsize: 3\n"),
              AllOf(HasSubstr("my.yaml:2: "), HasSubstr("'batchsize'; try batch_size")));
  EXPECT_THAT(refusal_of_file("training:\n  lr: 1\n  seq: long\n"),
              AllOf(HasSubstr("my.yaml:3: seq: expected a whole number"), HasSubstr("'long'")));
  EXPECT_THAT(refusal_of_file("optimizer: {name: adamw}\n"), HasSubstr("my.yaml:1: optimizer: "));
  EXPECT_THAT(refusal_of_file("lr: 1\n---\nlr: 2\n"),
              AllOf(HasSubstr("my.yaml:2: "), HasSubstr("one YAML document")));
  EXPECT_THAT(refusal_of_file("- lr\n- seq\n"), HasSubstr("a map of keys"));
  EXPECT_THAT(refusal_of_file("? [lr]\n: 2\n"), HasSubstr("the name of a key"));
  EXPECT_THAT(refusal_of_file("lr: 1\nseq: [1\n"), HasSubstr("my.yaml:3: expected YAML"));
  // Their texts were "illegal map value", "end of map not found" and "expected a key".
  EXPECT_THAT(refusal_of_file("training:\n\tlr: 1\n"),
              AllOf(HasSubstr("my.yaml:2: "), HasSubstr("received 'a tab'; try two blanks")));
  EXPECT_THAT(refusal_of_file("training:\n  lr: 1\n seq: 2\n"), HasSubstr("the same indentation"));
  EXPECT_THAT(refusal_of_file("training: 5\n"),
              AllOf(HasSubstr("keys below training"), HasSubstr("training: {batch_size: 32}")));
  EXPECT_THAT(refusal_of_file("training: &a {training: *a}\n"), HasSubstr("training.training"));
}

// yaml-cpp's LoadAll never came back from these, and its Load read them as empty.
TEST(Config, AFileThatBeginsOrGoesOnWithNoYamlIsRefused) {
  for (const char* wrong :
       {",training: 1\n", ", lr: 1", "lr: 1\n, seq: 2\n", "]", "}\n", "lr: 1\n]\n"})
    EXPECT_THAT(refusal_of_file(wrong), HasSubstr("YAML")) << wrong;
  EXPECT_THAT(refusal("model.lora_targets=[q], v"), HasSubstr("one YAML document"));
}

TEST(Config, AMissingFileIsAnInputError) {
  const Sources sources{.preset = "default", .file = "/no/such.yaml", .overrides = {}};
  EXPECT_THROW((void)resolve(training_keys(), sources), InputError);
}

// ---- Values ----

TEST(Config, FlagsHaveTheWordsOfYaml) {
  for (const char* yes : {"true", "yes", "on", "True", "YES", "\"true\""})
    EXPECT_TRUE(from_file(std::string("fp16: ") + yes).yes("fp16")) << yes;
  for (const char* no : {"false", "no", "off"})
    EXPECT_FALSE(given({std::string("auto_device=") + no}).yes("auto_device")) << no;
  EXPECT_EQ(refusal("fp16=1"), "fp16: expected true or false, received '1'; try false");
}

TEST(Config, NumbersAreReadWholeOrRefused) {
  EXPECT_DOUBLE_EQ(given({"lr=1e-4"}).number("lr"), 1e-4);
  EXPECT_DOUBLE_EQ(from_file("lr: .5\n").number("lr"), 0.5);
  EXPECT_DOUBLE_EQ(given({"batch_size= 8 "}).number("batch_size"), 8);
  EXPECT_EQ(refusal("batch_size=many"),
            "batch_size: expected a whole number from 1 to 16777216, received 'many'; try 32");
  for (const char* wrong : {"batch_size=0", "batch_size=1.5", "batch_size=", "batch_size=8x",
                            "lr=nan", "lr=-1", "lr=1e999", "gpu_check_interval_seconds=0"})
    EXPECT_THAT(refusal(wrong), HasSubstr("expected a ")) << wrong;
}

TEST(Config, ABudgetIsAShareOrASize) {
  EXPECT_DOUBLE_EQ(given({}).share_or_bytes("budget").share.value(), 0.7);
  EXPECT_DOUBLE_EQ(given({"budget=10%"}).share_or_bytes("budget").share.value(), 0.1);
  EXPECT_DOUBLE_EQ(given({"budget=1"}).share_or_bytes("budget").share.value(), 1);
  EXPECT_EQ(given({"budget=20GiB"}).share_or_bytes("budget").bytes, 20_GiB);
  EXPECT_EQ(given({"budget=1048576"}).share_or_bytes("budget").bytes, 1_MiB);
  EXPECT_EQ(refusal("budget=10"),
            "budget: expected a size with its unit, received '10'; try 10GiB");
  EXPECT_EQ(refusal("budget=0"),
            "budget: expected a share from 0.001 to 1, or a size of at least 1MiB with its unit, "
            "received '0'; try 0.7");
  for (const char* wrong :
       {"budget=0", "budget=-1", "budget=1KiB", "budget=110%", "budget=most", "budget="})
    EXPECT_THAT(refusal(wrong), HasSubstr("expected")) << wrong;
  EXPECT_DOUBLE_EQ(given({"margin=0"}).share_or_bytes("margin").share.value(), 0);
  EXPECT_DOUBLE_EQ(given({"emergency_clean_above=95%"}).number("emergency_clean_above"), 0.95);
}

TEST(Config, ChoicesMayHaveANumber) {
  EXPECT_FALSE(given({"loss=fused"}).number_in("loss"));
  EXPECT_EQ(given({"loss=chunked:1024"}).number_in("loss"), 1024);
  EXPECT_EQ(given({"device=cuda:2"}).text("device"), "cuda:2");
  EXPECT_EQ(given({"gradient_checkpointing=yes"}).text("gradient_checkpointing"), "true");
  EXPECT_EQ(given({"gradient_checkpointing=every:4"}).number_in("gradient_checkpointing"), 4);
  EXPECT_THAT(refusal("gradient_checkpointing=every:0"), HasSubstr("one of false, true, every:N"));
  EXPECT_THAT(refusal("device=cuda"), EndsWith("received 'cuda'; try cuda:0"));
  EXPECT_THAT(refusal("optimizer=adamv"), EndsWith("received 'adamv'; try adamw"));
  EXPECT_THAT(refusal("loss=chunked:"), EndsWith("try chunked:1"));
}

TEST(Config, WordsStandInAListOrBetweenCommas) {
  const auto is_qv = ElementsAre("q", "v");
  EXPECT_THAT(given({}).words("model.lora_targets"), is_qv);
  EXPECT_THAT(given({"model.lora_targets=q, v"}).words("model.lora_targets"), is_qv);
  EXPECT_THAT(given({"model.lora_targets=[q, 'v']"}).words("model.lora_targets"), is_qv);
  EXPECT_THAT(from_file("model: {lora_targets: [q, v]}").words("model.lora_targets"), is_qv);
  for (const char* wrong : {"q,,v", "", "[]", "[q, [v]]", "[q, {a: b}]", "[q"})
    EXPECT_THAT(refusal(std::string("model.lora_targets=") + wrong), HasSubstr("expected"))
        << wrong;
}

TEST(Config, ValuesOfOptionalKeysCanBeTakenBack) {
  for (const char* nothing : {"save_every=", "save_every=none", "save_every=null"}) {
    const Resolved config = given({nothing}, "robust");
    EXPECT_FALSE(config.optional_whole("save_every")) << nothing;
    EXPECT_FALSE(config.is_given("save_every")) << nothing;
  }
  EXPECT_FALSE(from_file("weights: ~\n").optional_text("weights"));
  EXPECT_EQ(from_file("weights: \"a: #b\"\n").optional_text("weights"), "a: #b");
  EXPECT_EQ(from_file("out: |\n  a b\n").text("out"), "a b");
  EXPECT_EQ(given({"alloc_conf="}).text("alloc_conf"), "");
}

TEST(Config, TextIsOneLineOfUtf8) {
  EXPECT_EQ(given({"out=r\xc3\xa4ume/[1]"}).text("out"), "r\xc3\xa4ume/[1]");
  for (const char* wrong : {"out=a\nb", "out=\xff", "out=\x1b[31m"})
    EXPECT_THAT(refusal(wrong), HasSubstr("one line of text")) << wrong;
}

// ---- Refusals on the command line ----

TEST(Config, AnUnknownKeyIsRefusedAndTheNearestNamed) {
  EXPECT_THAT(refusal("batchsize=3"), EndsWith("received 'batchsize'; try batch_size"));
  EXPECT_THAT(refusal("training.batch_sice=3"), EndsWith("try batch_size"));
  EXPECT_THAT(refusal("lora_r=3"), EndsWith("try model.lora_r"));
  EXPECT_THAT(refusal("model.lorar=3"), EndsWith("try model.lora_r"));
  EXPECT_THAT(refusal("learning_rate=3"), EndsWith("received 'learning_rate'; try lr"));
  EXPECT_THAT(refusal("max_steps=3"), EndsWith("try steps"));
  EXPECT_THAT(refusal("xylophone=3"), EndsWith("received 'xylophone'"));
  EXPECT_THAT(refusal("=3"), HasSubstr("received ''"));
}

TEST(Config, AKeyWithoutAValueIsRefused) {
  EXPECT_EQ(refusal("fp16"), "expected key=value, received 'fp16'; try fp16=false");
  EXPECT_THAT(refusal("batchsize"), EndsWith("try batch_size"));
}

TEST(Config, AnUnknownPresetIsRefusedAndTheNearestNamed) {
  try {
    (void)given({}, "robuts");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.sentence(), "expected one of default, robust, received 'robuts'; try robust");
  }
}

TEST(Config, AGetterOfTheWrongKindIsABugInHeadroom) {
  EXPECT_THROW((void)given({}).whole("lr"), InternalError);
  EXPECT_THROW((void)given({}).text("weights"), InternalError);
  EXPECT_THROW((void)given({}).number_in("batch_size"), InternalError);
}

// ---- Documents ----

TEST(Config, ItsYamlReadsBackAsTheSame) {
  const Resolved config =
      given({"out=a \"b\\c\": #d", "lr=1e-4", "budget=24 GB", "loss=chunked:8", "weights=~/x",
             "model_variants=[{min_total: 40GiB, model: vit-large}, {model: 'vit: \"b\"'}]",
             "model.lora_targets=q,o", "fp16=on"},
            "robust");
  const Resolved again = from_file(config.to_yaml());
  EXPECT_EQ(again.to_json(), config.to_json());
  EXPECT_EQ(again.to_yaml(), config.to_yaml());
  for (const Key& key : training_keys().keys())
    EXPECT_EQ(again.is_given(key.name), config.is_given(key.name)) << key.name;
  EXPECT_THAT(config.to_yaml(),
              AllOf(HasSubstr("\n# batch_size: 32\n"), HasSubstr("\nlr: 1e-4\n")));
}

TEST(Config, ItsJsonHasTypes) {
  const Json json = given({"budget=1GiB", "seq=128", "model_variants=[{model: a}]"}).to_json();
  EXPECT_EQ(json.at("model"), "lora");
  EXPECT_EQ(json.at("budget"), 1 << 30);
  EXPECT_EQ(json.at("seq"), 128);
  EXPECT_EQ(json.at("fp16"), false);
  EXPECT_EQ(json.at("max_grad_norm"), 1.0);
  EXPECT_TRUE(json.at("weights").is_null());
  EXPECT_EQ(json.at("model.lora_targets"), Json({"q", "v"}));
  EXPECT_EQ(json.at("model_variants"), Json::array({{{"model", "a"}}}));
}

TEST(Config, ItsEntriesAreAllKeysInOrder) {
  const std::vector<Entry> entries = given({"model=full"}).entries();
  ASSERT_EQ(entries.size(), training_keys().keys().size());
  EXPECT_EQ(entries[0].key, "model");
  EXPECT_EQ(entries[0].value, "full");
  EXPECT_EQ(entries[0].origin, "command line");
}

}  // namespace
}  // namespace headroom::config
