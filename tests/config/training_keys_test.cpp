#include "headroom/config/training_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/config/presets.h"
#include "headroom/config/resolved.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"

namespace headroom::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSubsetOf;

Resolved training(const std::vector<std::string>& overrides,
                  const std::string& preset = "default") {
  return resolve(training_keys(), {.preset = preset, .file = {}, .overrides = overrides});
}

TEST(TrainingKeys, RoundStochasticallyInBfloat16WhereTheOptimizerCan) {
  const auto rounding = [](const std::vector<std::string>& keys) {
    return training(keys).text("rounding");
  };
  EXPECT_EQ(rounding({}), "nearest");
  EXPECT_EQ(rounding({"dtype=bfloat16"}), "stochastic");
  EXPECT_EQ(rounding({"dtype=bfloat16", "optimizer=sgd-momentum"}), "stochastic");
  EXPECT_EQ(rounding({"dtype=bfloat16", "optimizer=adamw4bit"}), "stochastic");
  EXPECT_EQ(rounding({"dtype=bfloat16", "optimizer=adafactor"}), "nearest");
  EXPECT_EQ(rounding({"dtype=bfloat16", "rounding=nearest"}), "nearest");
}

// The keys and defaults that the reference of `headroom train` promises.
TEST(TrainingKeys, HaveThePromisedDefaults) {
  const std::vector<std::pair<const char*, const char*>> promised{
      {"model", "lora"},
      {"dataset", "flowers102"},
      {"model.config", "vit-base"},
      {"model.lora_r", "8"},
      {"batch_size", "32"},
      {"auto_batch_size", "true"},
      {"min_batch_size", "4"},
      {"gradient_accumulation_steps", "1"},
      {"max_grad_norm", "1.0"},
      {"fp16", "false"},
      {"bf16", "false"},
      {"gradient_checkpointing", "false"},
      {"num_workers", "2"},
      {"auto_device", "true"},
      {"device", "auto"},
      {"allow_cpu", "false"},
      {"wait_for_gpu", "false"},
      {"min_gpu_memory_mb", "4000"},
      {"gpu_wait_timeout_minutes", "60"},
      {"gpu_check_interval_seconds", "30"},
      {"data_dir", "data/flowers102"},
      {"max_retries", "3"},
      {"budget", "0.7"},
      {"alloc_conf", ""},
      {"clear_memory_on_start", "true"},
      {"check_memory_every_n_steps", "5"},
      {"emergency_clean_above", "0.9"},
      {"clear_cache_every_n_steps", "0"},
  };
  std::map<std::string, std::optional<std::string>> values;
  for (const Entry& entry : training({}).entries()) values[entry.key] = entry.value;
  for (const auto& [key, value] : promised) EXPECT_EQ(values.at(key), value) << key;
  for (const char* key :
       {"model_variants", "weights", "seq", "steps", "save_every", "plan_schedule"})
    EXPECT_FALSE(values.at(key)) << key;
}

TEST(TrainingKeys, WorkWithTrainingInFront) {
  for (const Key& key : training_keys().keys())
    EXPECT_EQ(training_keys().key("training." + key.name).name, key.name);
}

TEST(TrainingKeys, HaveDefaultsThatTheyAcceptThemselves) {
  std::set<std::string> names;
  Resolved config(training_keys());
  for (const Key& key : training_keys().keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.effect.empty() || key.group.empty()) << key.name;
    if (!key.usual) continue;
    EXPECT_NO_THROW(config.set(key.name, *key.usual, "test")) << key.name;
  }
  EXPECT_EQ(config.to_json(), Resolved(training_keys()).to_json());
}

// Words that other rooms know under the same names.
TEST(TrainingKeys, SpeakTheWordsOfTheSettings) {
  EXPECT_THAT(training_keys().key("optimizer").choices,
              IsSubsetOf(model::choices<model::Optimizer>()));
  EXPECT_EQ(training_keys().key("attention").choices, model::choices<model::Attention>());
  for (const char* dataset : {"tokens", "flowers102"})
    EXPECT_NO_THROW((void)model::model_named(
        training({std::string("dataset=") + dataset}).text("model.config")));
}

TEST(TrainingKeys, DefaultsFollowOtherKeys) {
  EXPECT_EQ(training({}).number("lr"), 5e-4);
  EXPECT_EQ(training({"model=full"}).number("lr"), 5e-5);
  EXPECT_EQ(training({"model=full", "weights=random"}).number("lr"), 5e-4);
  EXPECT_EQ(training({"optimizer=sgd"}).number("lr"), 1e-2);
  EXPECT_EQ(training({"optimizer=sgd", "lr=3"}).number("lr"), 3);
  EXPECT_EQ(training({}).number("weight_decay"), 0.01);
  EXPECT_EQ(training({"optimizer=adam"}).number("weight_decay"), 0);
  EXPECT_EQ(training({"batch_size=2"}).whole("min_batch_size"), 2);
  EXPECT_EQ(training({"model.lora_r=16"}).number("model.lora_alpha"), 16);
  EXPECT_EQ(training({}).optional_whole("epochs"), 3);
  EXPECT_EQ(training({"steps=10"}).optional_whole("epochs"), std::nullopt);
  EXPECT_EQ(training({"dataset=tokens"}).text("model.config"), "gpt2");
  EXPECT_FALSE(training({"model=gpt-tiny"}).optional_text("model.config"));
  EXPECT_FALSE(training({"steps=10"}).is_given("epochs"));
}

TEST(Presets, RobustWaitsAndKeepsWhatWasReached) {
  const Resolved robust = training({}, "robust");
  std::vector<std::string> given;
  for (const Entry& entry : robust.entries())
    if (entry.origin == "preset robust") given.push_back(entry.key + "=" + *entry.value);
  EXPECT_THAT(given,
              ElementsAre("allow_cpu=true", "wait_for_gpu=true", "save_every=100", "keep_last=2"));
}

TEST(Presets, DefaultChangesNothing) {
  const std::vector<Entry> entries = training({}, "default").entries();
  EXPECT_TRUE(std::all_of(entries.begin(), entries.end(),
                          [](const Entry& entry) { return entry.origin == "default"; }));
  for (const std::string& name : preset_names()) EXPECT_NO_THROW((void)training({}, name));
}

}  // namespace
}  // namespace headroom::config
