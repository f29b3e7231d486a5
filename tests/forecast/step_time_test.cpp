#include "headroom/forecast/step_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "headroom/model/model_catalogue.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast {
namespace {

// ---- Beside published throughputs of training, one card, rows a second ----
//
// lambda: github.com/lambdal/deeplearning-benchmark, pytorch/pytorch-train-throughput-fp32.csv and
//   -fp16.csv, batches of pytorch-train-bs-*.csv (both commit 0551cb7 and 08d77c4): NVIDIA's model
//   implementations, SQuAD with 384 tokens, ImageNet with 224 pixels a side.
// nvidia: github.com/NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets/resnet50v1.5
//   (commit 291f0d0), "Training performance", batch 256.
//
// Their models are fused more than transformers' are, and the two sources differ from each other by
// a factor of 1.6 for one card. Their containers let products of floats use TF32 on Ampere and
// later, which PyTorch alone does not: in float there are figures for convolutions, and of products
// only on chips without TF32.
struct Published {
  const char* source;
  const char* card;
  const char* model;
  std::int64_t floats_batch;  // 0: not comparable
  double floats;
  std::int64_t mixed_batch;
  double mixed;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"lambda", "V100 16GB", "resnet50", 128, 369, 256, 833},
      {"lambda", "Quadro RTX 8000", "resnet50", 496, 274, 928, 651},
      {"lambda", "RTX 3090", "resnet50", 224, 513, 448, 905},
      {"lambda", "RTX 4090", "resnet50", 224, 721, 448, 1301},
      {"lambda", "RTX A6000", "resnet50", 496, 514, 928, 916},
      {"lambda", "A100 80GB", "resnet50", 640, 1066, 1280, 1582},
      {"lambda", "H100 PCIe", "resnet50", 640, 1197, 1280, 1866},
      {"nvidia", "A100 80GB", "resnet50", 256, 938, 256, 2470},
      {"nvidia", "V100 16GB", "resnet50", 256, 367, 256, 1200},
      {"lambda", "V100 16GB", "bert-base", 24, 42, 48, 189},
      {"lambda", "Quadro RTX 8000", "bert-base", 96, 41, 192, 146},
      {"lambda", "V100 16GB", "bert-large", 8, 12, 16, 57},
      {"lambda", "Quadro RTX 8000", "bert-large", 32, 12, 64, 50},
      {"lambda", "RTX 3090", "bert-large", 0, 0, 28, 52},
      {"lambda", "RTX 4090", "bert-large", 0, 0, 28, 93},
      {"lambda", "RTX A6000", "bert-large", 0, 0, 64, 68},
      {"lambda", "A100 80GB", "bert-large", 0, 0, 112, 152},
      {"lambda", "H100 PCIe", "bert-large", 0, 0, 112, 203},
  };
  return all;
}

double rows_a_second(const Published& one, bool mixed) {
  model::Settings settings;
  settings.batch = mixed ? one.mixed_batch : one.floats_batch;
  settings.autocast = mixed ? model::Autocast::fp16 : model::Autocast::none;
  const bool images = std::string(one.model) == "resnet50";
  settings.optimizer = images ? model::Optimizer::sgd_momentum : model::Optimizer::adamw;
  if (!images) settings.seq = 384;
  settings.attention = model::Attention::eager;  // as those implementations have it
  const gpu::CatalogueCard& card = gpu::card_named(one.card);
  const Forecast forecast =
      forecast_of(model::model_named(one.model).config, settings, gpu::find_profile(card.profile));
  return static_cast<double>(settings.batch) / step_seconds(forecast, &card);
}

// Factors above 1: the forecast is too fast; below 1: too slow.
struct Ratios {
  std::vector<double> times, speedups;
};

Ratios ratios() {
  Ratios all;
  for (const Published& one : published()) {
    const double mixed = rows_a_second(one, true);
    all.times.push_back(mixed / one.mixed);
    if (one.floats_batch == 0) continue;
    const double floats = rows_a_second(one, false);
    all.times.push_back(floats / one.floats);
    all.speedups.push_back(mixed / floats / (one.mixed / one.floats));
  }
  return all;
}

double worst(const std::vector<double>& all) {
  double most = 1;
  for (const double ratio : all) most = std::max({most, ratio, 1 / ratio});
  return most;
}

double mean(const std::vector<double>& all) {
  double sum = 0;
  for (const double ratio : all) sum += std::log(ratio);
  return std::exp(sum / static_cast<double>(all.size()));
}

TEST(StepSeconds, AreWithinAFactorOfPublishedTimesAndRightInTheMean) {
  const Ratios found = ratios();
  EXPECT_GE(found.times.size(), 25U);
  EXPECT_LT(worst(found.times), 2.4);
  EXPECT_NEAR(mean(found.times), 1, 0.15);
}

// Mixed precision was said to take 0.13 of ResNet-50's time on an A100, by peak rates alone: its
// convolutions use TF32 without being asked, and half of its time is bandwidth.
TEST(StepSeconds, GainByMixedPrecisionWhatIsPublished) {
  const Ratios found = ratios();
  EXPECT_GE(found.speedups.size(), 12U);
  EXPECT_LT(worst(found.speedups), 1.9);
  EXPECT_NEAR(mean(found.speedups), 1, 0.2);
}

// A T4 has no units for bf16: its rate of fp16 was taken.
TEST(StepSeconds, OfBf16AreThoseOfFloatsWhereTheChipHasNoUnits) {
  const model::ModelConfig config = model::model_named("gpt2").config;
  const auto seconds = [&](model::Autocast autocast) {
    model::Settings settings;
    settings.batch = 8;
    settings.autocast = autocast;
    return step_seconds(forecast_of(config, settings), gpu::find_card("T4"));
  };
  EXPECT_GT(seconds(model::Autocast::bf16), 0.8 * seconds(model::Autocast::none));
  EXPECT_LT(seconds(model::Autocast::fp16), 0.6 * seconds(model::Autocast::none));
}

TEST(StepSeconds, AreFewerOnAFasterCard) {
  const Forecast forecast = forecast_of(model::model_named("gpt2").config, {});
  EXPECT_LT(step_seconds(forecast, gpu::find_card("H100 SXM")),
            step_seconds(forecast, gpu::find_card("T4")));
}

TEST(StepSeconds, GrowWithAccumulation) {
  model::Settings settings;
  const model::ModelConfig config = model::model_named("gpt2").config;
  const double one = step_seconds(forecast_of(config, settings), nullptr);
  settings.accumulation = 4;
  const double four = step_seconds(forecast_of(config, settings), nullptr);
  EXPECT_GT(four, 3 * one);
  EXPECT_LT(four, 4 * one) << "the optimizer steps once";
}

// ---- By module, for models that cards share ----

std::int64_t layers_in(const Forecast& forecast) {
  std::int64_t layers = 0;
  for (const ModuleWork& module : forecast.work) layers += module.layers;
  return layers;
}

TEST(ModuleWork, HasTheLayersThatASplitCounts) {
  for (const model::CatalogueModel& one : model::catalogue_models()) {
    const model::ModelConfig config = model::model_named(one.name).config;
    EXPECT_EQ(layers_in(forecast_of(config, {})), model::layer_count(config)) << one.name;
  }
}

TEST(ModuleWork, AddsUpToTheWhole) {
  for (const char* name : {"gpt2", "llama-2-7b", "mixtral-8x7b", "t5-base", "resnet50", "vit-base"})
    for (const std::int64_t every : {0, 1}) {
      model::Settings settings;
      settings.checkpoint_every = std::string(name) == "resnet50" ? 0 : every;
      const Forecast forecast = forecast_of(model::model_named(name).config, settings);
      Effort sum;
      Bytes resident;
      long long parameters = 0;
      for (const ModuleWork& module : forecast.work) {
        sum += module.forward;
        sum += module.backward;
        resident += module.resident;
        parameters += module.parameters;
      }
      EXPECT_NEAR(sum.operations() / forecast.effort.operations(), 1, 1e-12) << name;
      EXPECT_EQ(resident, forecast.resident) << name;
      EXPECT_EQ(parameters, forecast.parameters) << name;
    }
}

// Two matrix products for each one of the forward pass; one more forward pass where it runs again.
TEST(ModuleWork, HasTheBackwardPassOfItsOwnLayers) {
  model::Settings settings;
  settings.dtype = model::Dtype::bfloat16;
  settings.seq = 1024;
  const auto config = model::model_named("llama-2-7b").config;
  const auto share = [&](std::int64_t every) {
    settings.checkpoint_every = every;
    for (const ModuleWork& module : forecast_of(config, settings).work)
      if (module.layers == 32) return module.backward.operations() / module.forward.operations();
    return 0.0;
  };
  EXPECT_NEAR(share(0), 2, 0.1);
  EXPECT_NEAR(share(1), 3, 0.1);
}

// A GPT-2 of one row and eight tokens runs as long as its kernels take to start.
TEST(StepSeconds, OfTinyWorkAreThoseOfItsKernels) {
  model::Settings settings;
  settings.seq = 8;
  const auto config = model::model_named("gpt2").config;
  const double slow = step_seconds(forecast_of(config, settings), gpu::find_card("A100 80GB"));
  const double fast = step_seconds(forecast_of(config, settings), gpu::find_card("B200"));
  EXPECT_LT(slow / fast, 3) << "though its rates are seven times as high";
  EXPECT_GT(fast, 1e-3);
}

// A split divides the work, and loses none of it.
TEST(LayerSeconds, AddUpToAStep) {
  for (const char* name : {"gpt2", "t5-small", "resnet50", "mixtral-8x7b", "bert-base-uncased"}) {
    const model::NamedModel model = model::model_named(name);
    const gpu::CatalogueCard& card = gpu::card_named("RTX 4090");
    const Forecast forecast = forecast_of(model.config, {});
    const auto layers = layer_seconds(forecast, &card);
    EXPECT_EQ(static_cast<std::int64_t>(layers.size()), model::layer_count(model.config)) << name;
    double sum = 0;
    for (const LayerSeconds& layer : layers)
      sum += layer.forward + layer.backward + layer.optimizer;
    // The floor of a kernel counts for each module.
    EXPECT_NEAR(sum / step_seconds(forecast, &card), 1, 0.05) << name;
    EXPECT_GE(sum, step_seconds(forecast, &card) * (1 - 1e-9)) << name;
  }
}

}  // namespace
}  // namespace headroom::forecast
