#include "headroom/model/model_config.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/base/error.h"
#include "headroom/model/model_catalogue.h"
#include "tests/support/temporary_folder.h"

namespace headroom::model {
namespace {

using ::testing::AllOf;
using ::testing::Contains;

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ModelConfig config_of(const char* text) {
  return ModelConfig(parse_json(text, "test"), "a/config.json");
}

template <typename Error, typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ModelConfig, TakesTransformersDefaultsAndSaysWhich) {
  const ModelConfig config = config_of(R"({"model_type": "llama", "hidden_size": 64})");
  EXPECT_EQ(config.count("hidden_size"), 64);
  EXPECT_EQ(config.count("num_hidden_layers"), 32);
  EXPECT_EQ(config.text("hidden_act"), "silu");
  EXPECT_FALSE(config.flag("tie_word_embeddings"));
  EXPECT_THAT(config.defaulted(), Contains("num_hidden_layers = 32"));
  EXPECT_THAT(config.defaulted(), Not(Contains(HasSubstr("hidden_size"))));
}

TEST(ModelConfig, KnowsTheGeneralNamesOfKeys) {
  const ModelConfig config =
      config_of(R"({"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 3})");
  EXPECT_EQ(config.count("n_embd"), 64);
  EXPECT_EQ(config.count("n_layer"), 3);
}

TEST(ModelConfig, ReadsTheRotarySettingsThatTransformers5Writes) {
  const ModelConfig llama = config_of(R"({"model_type": "llama", "rope_parameters":
      {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0}})");
  EXPECT_EQ(llama.number("rope_theta"), 500000);
  EXPECT_EQ(llama.at("rope_scaling").at("factor"), 8);
  const ModelConfig neox = config_of(R"({"model_type": "gpt_neox", "rope_parameters":
      {"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(neox.number("rotary_emb_base"), 2000);
  EXPECT_EQ(neox.number("rotary_pct"), 0.5);
  EXPECT_TRUE(neox.is_null("rope_scaling"));
}

TEST(ModelConfig, CountsLabelsByTheirNames) {
  EXPECT_EQ(config_of(R"({"model_type": "vit"})").labels(), 2);
  EXPECT_EQ(config_of(R"({"model_type": "vit", "num_labels": 7})").labels(), 7);
  EXPECT_EQ(
      config_of(R"({"model_type": "vit", "id2label": {"0": "a", "1": "b", "2": "c"}})").labels(),
      3);
}

TEST(ModelConfig, NamesTheNearestOfUnknownTypes) {
  EXPECT_THAT(error_of<InputError>([] { (void)config_of(R"({"model_type": "llamma"})"); }),
              AllOf(HasSubstr("a/config.json"), HasSubstr("'llamma'"), HasSubstr("try llama")));
  EXPECT_THAT(error_of<InputError>([] { (void)config_of(R"({"model_type": "mamba"})"); }),
              HasSubstr("'mamba'"));
  EXPECT_THROW((void)config_of(R"({"hidden_size": 64})"), InputError);
  EXPECT_THROW((void)config_of("[]"), InputError);
}

TEST(ModelConfig, RefusesValuesOfAnotherKindNamingFileAndKey) {
  const ModelConfig config = config_of(
      R"({"model_type": "llama", "hidden_size": "64", "num_hidden_layers": -1,
          "tie_word_embeddings": 1, "hidden_act": null, "vocab_size": 0, "head_dim": 1e30})");
  const auto complaint = [&](auto&& ask) { return error_of<InputError>([&] { (void)ask(); }); };
  EXPECT_THAT(complaint([&] { return config.count("hidden_size"); }),
              AllOf(HasSubstr("`hidden_size` in a/config.json"), HasSubstr("\"64\"")));
  EXPECT_THAT(complaint([&] { return config.count("num_hidden_layers"); }), HasSubstr("-1"));
  EXPECT_THAT(complaint([&] { return config.flag("tie_word_embeddings"); }), HasSubstr("true"));
  EXPECT_THAT(complaint([&] { return config.text("hidden_act"); }), HasSubstr("null"));
  EXPECT_THAT(complaint([&] { return config.at_least_1("vocab_size"); }), HasSubstr("at least 1"));
  EXPECT_THAT(complaint([&] { return config.count("head_dim"); }), HasSubstr("head_dim"));
  EXPECT_THROW((void)config.count("no_such_key"), InternalError);
}

TEST(ReadConfig, TakesAFileOrItsFolder) {
  const headroom::testing::TemporaryFolder folder;
  const auto file = folder.path() / "config.json";
  std::ofstream(file) << R"({"model_type": "bert", "hidden_size": 32})";
  EXPECT_EQ(read_config(file).count("hidden_size"), 32);
  EXPECT_EQ(read_config(folder.path()).count("hidden_size"), 32);
  EXPECT_THROW((void)read_config(folder.path() / "none.json"), InputError);
  std::ofstream(file) << R"({"model_type": "bert")";
  EXPECT_THROW((void)read_config(file), InputError);
}

TEST(ModelNamed, FindsModelsByNameAliasAndCase) {
  EXPECT_EQ(model_named("llama-3.1-8b").config.count("num_key_value_heads"), 8);
  EXPECT_EQ(model_named("meta-llama/Llama-3.1-8B").name, "llama-3.1-8b");
  EXPECT_EQ(model_named("BERT_base").name, "bert-base");
  EXPECT_THAT(model_named("gpt2").note, IsEmpty());
}

TEST(ModelNamed, TakesTheNearestStandardShapeForASizeAndSaysWhich) {
  EXPECT_EQ(model_named("7B").name, "llama-2-7b");
  // Both meant llama-2-13b, so a benchmark over them would have run one model twice.
  EXPECT_EQ(model_named("11B").name, "pythia-12b");
  EXPECT_EQ(model_named("13B").name, "llama-2-13b");
  EXPECT_EQ(model_named("3B").name, "opt-2.7b");
  EXPECT_EQ(model_named("20B").name, "gpt-neox-20b");
  EXPECT_EQ(model_named("33B").name, "qwen2.5-32b");
  EXPECT_THAT(model_named("7B").note, HasSubstr("llama-2-7b, 6.74 B"));
  EXPECT_EQ(model_named("125m").name, "gpt2");
  EXPECT_EQ(model_named("1.3B").name, "opt-1.3b");
  EXPECT_EQ(model_named("70b").name, "llama-2-70b");
}

TEST(ModelNamed, SuggestsTheNearestNameForAnUnknownOne) {
  EXPECT_THAT(error_of<UsageError>([] { (void)model_named("lama-3.1-8b"); }),
              HasSubstr("try llama-3.1-8b"));
  EXPECT_THROW((void)model_named(""), UsageError);
  EXPECT_THROW((void)model_named("0B"), UsageError);
  EXPECT_THROW((void)model_named("/nowhere/config.json"), InputError);
}

TEST(CatalogueModels, AreAllReadableAndNamedOnce) {
  std::set<std::string> names;
  for (const CatalogueModel& model : catalogue_models()) {
    EXPECT_NO_THROW((void)model_named(model.name)) << model.name;
    EXPECT_GT(model.parameters, 1'000'000) << model.name;
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    for (const std::string& alias : model.aliases) {
      EXPECT_TRUE(alias == model.name || names.insert(alias).second) << alias;
      EXPECT_EQ(model_named(alias).name, model.name) << alias;
    }
  }
}

}  // namespace
}  // namespace headroom::model
