#include "headroom/plan/savings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::plan {
namespace {

using namespace headroom::forecast;

using namespace headroom::literals;

const Saving* find(const std::vector<Saving>& all, std::string_view option) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Saving& each) { return each.option == option; });
  return found == all.end() ? nullptr : &*found;
}

model::Settings usual() {
  model::Settings settings;
  settings.batch = 4;
  settings.seq = 2048;
  settings.dtype = model::Dtype::bfloat16;
  return settings;
}

std::vector<Saving> of(const char* model, const model::Settings& settings,
                       const SavingOptions& options = {}) {
  return savings(model::model_named(model).config, settings, options);
}

TEST(Techniques, SaveWhatTheirSettingsSaveInTheForecast) {
  const model::ModelConfig config = model::model_named("llama-3.2-1b").config;
  const Bytes now = forecast_of(config, usual()).at_peak.total();
  const std::vector<Saving> all = savings(config, usual());
  ASSERT_GE(all.size(), 8U);
  for (const Saving& each : all) {
    EXPECT_GT(each.saves, 0_B) << each.option;
    EXPECT_EQ(each.saves, now - forecast_of(config, each.settings).at_peak.total()) << each.option;
    EXPECT_GT(each.time_factor, 0) << each.option;
  }
}

TEST(Techniques, HaveOptionsThatMeanTheirSettings) {
  for (const Saving& each : of("llama-3.2-1b", usual()))
    EXPECT_NE(each.settings, usual()) << each.option;
  const std::vector<Saving> all = of("llama-3.2-1b", usual());
  ASSERT_NE(find(all, "--checkpointing full"), nullptr);
  EXPECT_EQ(find(all, "--checkpointing full")->settings.checkpoint_every, 1);
  ASSERT_NE(find(all, "--lora-rank 8"), nullptr);
  EXPECT_EQ(find(all, "--lora-rank 8")->settings.lora_rank, 8);
}

Json value_of(const std::string& key, const std::string& word) {
  if (key == "offload") {
    Json list = Json::array();
    for (const std::string_view part : split(word, ',')) list.push_back(std::string(part));
    return list;
  }
  if (const auto number = to_integer(word)) return *number;
  return word;
}

// The settings after adding a technique's option to the command line.
model::Settings with_option(const model::Settings& settings, const std::string& option) {
  Json json = to_json(settings);
  std::string key;
  bool off = false;
  for (const std::string_view word : split(option, ' ')) {
    if (word == "no") {
      off = true;
    } else if (word.starts_with("--")) {
      key = word.substr(2);
      std::replace(key.begin(), key.end(), '-', '_');
      if (json.at(key).is_boolean()) json[key] = !off;
    } else {
      json[key] = value_of(key, std::string(word));
    }
  }
  return model::settings_from_json(json);
}

// LoRA of rank 4 over 8-bit weights was priced with rank 8, bf16 in place of autocast without it,
// and half a sequence with all of the target's.
TEST(Techniques, HaveOptionsThatMeanTheirSettingsWhateverIsOnAlready) {
  std::vector<model::Settings> runs(5, usual());
  runs[1].lora_rank = 4;
  runs[2].dtype = model::Dtype::float32;
  runs[2].autocast = model::Autocast::fp16;
  runs[3].form = model::OptimizerForm::foreach;
  runs[3].attention = model::Attention::eager;
  runs[3].zero_gradients = runs[3].hold_outputs = runs[3].use_cache = true;
  runs[4].offload.optimizer = true;
  runs[4].accumulation = 3;
  int options = 0;
  for (const char* model : {"llama-3.2-1b", "t5-small", "vit-base"})
    for (const model::Settings& run : runs) {
      const model::Settings now = forecast_of(model::model_named(model).config, run).settings;
      for (const Saving& each : of(model, run, {.card = nullptr, .gpus = 4})) {
        EXPECT_EQ(with_option(now, each.option), each.settings) << model << ": " << each.option;
        ++options;
      }
    }
  EXPECT_GT(options, 100);
}

TEST(Techniques, LeaveOutThoseInUse) {
  model::Settings settings = usual();
  settings.checkpoint_every = 1;
  settings.optimizer = model::Optimizer::sgd;
  const std::vector<Saving> all = of("llama-3.2-1b", settings);
  EXPECT_EQ(find(all, "--checkpointing full"), nullptr);
  EXPECT_EQ(find(all, "--optimizer sgd"), nullptr);
  EXPECT_EQ(find(all, "--dtype bfloat16"), nullptr);
}

TEST(Techniques, LeaveOutThoseThatTheModelDoesNotSupport) {
  model::Settings settings;
  settings.batch = 64;
  const std::vector<Saving> all = of("resnet50", settings);
  for (const Saving& each : all) {
    EXPECT_FALSE(each.option.starts_with("--seq"));
    EXPECT_FALSE(each.option.starts_with("--loss"));
  }
  EXPECT_NE(find(all, "--autocast bf16"), nullptr);
  EXPECT_NE(find(all, "--checkpointing full"), nullptr) << "though transformers cannot";
}

TEST(Techniques, PutEnoughFirstAndThoseThatKeepTheResultBeforeOthers) {
  const SavingOptions options{.card = nullptr, .gpus = 4, .room = 30_GiB};
  const std::vector<Saving> all = of("llama-3.2-3b", usual(), options);
  ASSERT_FALSE(all.empty());
  bool enough = true, same = true;
  for (const Saving& each : all) {
    EXPECT_EQ(each.fits, each.needs <= 30_GiB) << each.option;
    if (enough && !each.fits) enough = false, same = true;
    EXPECT_EQ(each.fits, enough) << each.option;
    if (each.option.starts_with("--seq")) continue;
    if (each.changes_training) same = false;
    EXPECT_NE(each.changes_training, same) << each.option;
  }
}

TEST(Techniques, PriceRecomputingAtLessThanASecondForwardPass) {
  const std::vector<Saving> all = of("llama-3.2-1b", usual());
  const Saving *full = find(all, "--checkpointing full"),
               *half = find(all, "--checkpointing every:2");
  ASSERT_TRUE(full != nullptr && half != nullptr);
  EXPECT_GT(half->time_factor, 1);
  EXPECT_GT(full->time_factor, half->time_factor);
  EXPECT_LT(full->time_factor, 1.5) << "forward is a third of the work";
  EXPECT_GT(full->saves, half->saves);
}

TEST(Techniques, KeepTheEffectiveBatch) {
  model::Settings settings = usual();
  settings.batch = 12;
  settings.accumulation = 2;
  bool found = false;
  for (const Saving& each : of("llama-3.2-1b", settings)) {
    if (!each.option.starts_with("--batch")) continue;
    found = true;
    EXPECT_EQ(each.settings.batch * each.settings.accumulation, 24);
    EXPECT_FALSE(each.changes_training);
  }
  EXPECT_TRUE(found);
}

TEST(Techniques, HaveNoSmallerBatchWhereGradientsCannotBeSummed) {
  model::Settings settings = usual();
  settings.optimizer_in_backward = true;
  const std::vector<Saving> all = of("llama-3.2-1b", settings);
  ASSERT_FALSE(all.empty());
  for (const Saving& each : all) EXPECT_FALSE(each.option.starts_with("--batch"));
}

TEST(Techniques, KnowZeroOnlyWithSeveralGpus) {
  EXPECT_EQ(find(of("llama-3.2-1b", usual()), "--world 4 --zero 3"), nullptr);
  const std::vector<Saving> all = of("llama-3.2-1b", usual(), {.card = nullptr, .gpus = 4});
  ASSERT_NE(find(all, "--world 4 --zero 3"), nullptr);
  EXPECT_GT(find(all, "--world 4 --zero 3")->saves, find(all, "--world 4 --zero 1")->saves);
}

TEST(Techniques, MarkThoseThatCannotRunYet) {
  SavingOptions options;
  options.can_run = [](const model::Settings& settings) {
    return settings.quantize == model::Quantize::none;
  };
  const std::vector<Saving> all = of("llama-3.2-1b", usual(), options);
  ASSERT_NE(find(all, "--quantize 4bit --lora-rank 8"), nullptr);
  EXPECT_FALSE(find(all, "--quantize 4bit --lora-rank 8")->can_run);
  EXPECT_TRUE(find(all, "--lora-rank 8")->can_run);
}

// 6 operations for each parameter and token, and attention: 4 for each pair of tokens and number of
// a head's width forward, 2.5 times that backward. The embedding is looked up, not multiplied.
TEST(Forecast, CountsSixOperationsAParameterAndToken) {
  model::Settings settings = usual();
  settings.batch = 1;
  settings.seq = 64;
  const Forecast forecast = forecast_of(model::model_named("llama-3.1-8b").config, settings);
  const double multiplied = static_cast<double>(forecast.parameters - 128'256LL * 4096);
  const double attention = 32 * 3.5 * 4 * 64 * 64 * 4096;
  EXPECT_NEAR(forecast.effort.operations() / (6 * multiplied * 64 + attention), 1, 0.001);
}

}  // namespace
}  // namespace headroom::plan
