// The distance of the closed form from the dry run: the allocated bytes at the peak, over all
// models of the catalogue and a spread of settings.
#include "headroom/forecast/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/estimate/training_step.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/positions.h"

namespace headroom::estimate {
namespace {

using model::CatalogueModel;
using model::ModelConfig;
using model::Settings;

// In the command line's words.
const std::vector<const char*>& spread() {
  static const std::vector<const char*> all = {
      R"({})",
      R"({"batch":4,"seq":1024,"optimizer_impl":"foreach","loss":"fused"})",
      R"({"batch":8,"seq":512,"dtype":"bfloat16","optimizer_impl":"loop"})",
      R"({"batch":1,"seq":4096,"dtype":"bfloat16","checkpointing":"full"})",
      R"({"batch":16,"seq":256,"dtype":"bfloat16","attention":"eager","optimizer":"sgd-momentum"})",
      R"({"batch":32,"seq":128,"attention":"eager","optimizer":"adafactor"})",
      R"({"batch":4,"seq":1024,"autocast":"bf16"})",
      R"({"batch":4,"seq":512,"dtype":"float16","checkpointing":"every:2","checkpointing_kind":"reentrant"})",
      R"({"batch":2,"seq":1024,"accumulation":4,"clip":1.0,"mask":"none"})",
      R"({"batch":2,"seq":1024,"dtype":"bfloat16","lora_rank":16,"checkpointing":"full"})",
      R"({"batch":8,"seq":1024,"dtype":"bfloat16","loss":"chunked:1024","optimizer":"adafactor-hf"})",
      R"({"batch":4,"seq":1024,"dtype":"bfloat16","mode":"inference"})"};
  return all;
}

bool sees(const ModelConfig& config) {
  return config.has("num_channels");
}

// As far as the model goes: so many tokens, adapters where there are any, a loss over tokens.
// Images come in batches four times as large.
Settings for_model(const ModelConfig& config, const char* words) {
  Json json = parse_json(words, "spread");
  Settings settings = model::settings_from_json(json);
  if (sees(config)) {
    settings.seq.reset();
    settings.batch *= settings.batch > 1 ? 4 : 1;
    settings.loss = model::LossForm::full;
    settings.loss_chunk = 0;
  }
  if (config.type() == "resnet" || config.type() == "convnext") {
    settings.lora_rank = 0;
  }
  if (settings.seq)
    settings.seq = std::min(*settings.seq, longest_sequence(config).value_or(*settings.seq));
  return settings;
}

struct Case {
  std::string name;
  double allocated_error = 0, reserved_error = 0;  // shares, of the dry run's
  bool same_phase = false;
};

Case compared(const CatalogueModel& model, const ModelConfig& config, const char* words,
              model::Transformers version) {
  Settings settings = for_model(config, words);
  // Checkpointed ones have a test of their own, below.
  if (config.type() == "resnet" || config.type() == "convnext") settings.checkpoint_every = 0;
  settings.transformers = version;
  const trace::Report report = dryrun::dry_run(
      "unlimited",
      [&](c10::Device device) { return training_step(config, settings, device).subject; },
      {.keep_trace = false});
  const forecast::Forecast forecast = forecast::forecast_of(config, settings);
  const auto error = [](Bytes ours, Bytes theirs) {
    return static_cast<double>(ours.count) / static_cast<double>(theirs.count) - 1;
  };
  return {model.name + " " + words, error(forecast.at_peak.total(), report.peak.allocated),
          error(forecast.reserved, report.peak.reserved), forecast.phase == report.peak.phase};
}

// Each model with two of the settings; large models, whose dry run takes long, with one. Neighbours
// of one family get different settings.
std::vector<Case> all_cases(model::Transformers version) {
  std::vector<Case> cases;
  std::size_t next = 0;
  for (const CatalogueModel& model : model::catalogue_models()) {
    const ModelConfig config = model::model_named(model.name).config;
    const int times = model.parameters < 8'000'000'000 ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      const char* words = spread()[next++ % spread().size()];
      cases.push_back(compared(model, config, words, version));
    }
  }
  return cases;
}

double quantile(std::vector<double> errors, double share) {
  for (double& error : errors) error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  return errors[std::min(errors.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(errors.size())))];
}

// ResNet and ConvNeXt run their layers again by stages. The difference: counters of batch norms.
TEST(ClosedForm, GivesTheRequestedBytesOfCheckpointedImageModels) {
  for (const char* name : {"resnet18", "resnet50", "convnext-tiny"})
    for (const char* checkpointing :
         {R"("checkpointing":"full")", R"("checkpointing":"every:3","dtype":"bfloat16")",
          R"("checkpointing":"every:2","checkpointing_kind":"reentrant")"}) {
      const std::string words =
          R"({"batch":8,"optimizer":"none",)" + std::string(checkpointing) + "}";
      const ModelConfig config = model::model_named(name).config;
      const Settings settings = for_model(config, words.c_str());
      const trace::Report report = dryrun::dry_run(
          "unlimited",
          [&](c10::Device device) { return training_step(config, settings, device).subject; },
          {.keep_trace = false});
      const trace::Parts parts = forecast::forecast_of(config, settings).at_peak;
      const Bytes difference = parts.total() - parts.rounding - report.peak.requested;
      EXPECT_LE(std::abs(difference.count), 1024) << name << " " << words;
    }
}

class ClosedForm : public testing::TestWithParam<std::string> {};

TEST_P(ClosedForm, IsCloseToTheDryRun) {
  std::vector<Case> cases = all_cases(model::choice<model::Transformers>(GetParam()));
  ASSERT_GE(cases.size(), 150U);
  std::vector<double> allocated, reserved;
  int same_phase = 0;
  for (const Case& one : cases) {
    allocated.push_back(one.allocated_error);
    reserved.push_back(one.reserved_error);
    same_phase += one.same_phase ? 1 : 0;
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) {
    return std::abs(a.allocated_error) > std::abs(b.allocated_error);
  });
  std::printf("allocated: median %.2f %%, 95 %% within %.2f %%, worst %.2f %%\n",
              100 * quantile(allocated, 0.5), 100 * quantile(allocated, 0.95),
              100 * quantile(allocated, 1));
  std::printf("reserved: median %.2f %%, 95 %% within %.2f %%; same phase in %d of %zu\n",
              100 * quantile(reserved, 0.5), 100 * quantile(reserved, 0.95), same_phase,
              cases.size());
  for (std::size_t i = 0; i < 5; ++i)
    std::printf("%+.2f %% %s\n", 100 * cases[i].allocated_error, cases[i].name.c_str());
  EXPECT_LE(quantile(allocated, 0.5), 0.001);
  EXPECT_LE(quantile(allocated, 0.95), 0.03);
  EXPECT_LE(quantile(allocated, 1), 0.08);
  EXPECT_LE(quantile(reserved, 0.5), 0.05);
  EXPECT_LE(quantile(reserved, 0.95), 0.15);
  EXPECT_GE(same_phase, static_cast<int>(cases.size() * 97 / 100));
}

TEST(ClosedFormOfAFusedLoss, IsCloseToTheDryRun) {
  for (const char* name : {"gpt2", "llama-3.2-1b", "gemma-2-2b", "bert-base", "t5-small"})
    for (const char* words :
         {R"({"batch":8,"seq":512,"loss":"fused","optimizer":"sgd"})",
          R"({"batch":16,"seq":512,"dtype":"bfloat16","loss":"fused","checkpointing":"full"})",
          R"({"batch":8,"seq":512,"autocast":"bf16","loss":"fused","optimizer":"sgd"})"}) {
      const Case one =
          compared({.name = name}, model::model_named(name).config, words, model::Transformers::v5);
      EXPECT_LE(std::abs(one.allocated_error), 0.03) << one.name << ' ' << one.allocated_error;
    }
}

INSTANTIATE_TEST_SUITE_P(Transformers, ClosedForm, testing::Values("4.57", "5"));

}  // namespace
}  // namespace headroom::estimate
