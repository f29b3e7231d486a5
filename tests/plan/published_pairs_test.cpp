// Where a published run gives two settings of one machine with several GPUs, the cost model
// predicts the faster one to be faster. And no step is faster than its matrix products can be.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/gpu/catalogue.h"
#include "headroom/model/meaning.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/placement.h"

namespace headroom::plan {
namespace {

model::ModelConfig gpt(int layers, int width, int heads, int vocabulary, int seq) {
  return {{{"model_type", "gpt2"},
           {"n_layer", layers},
           {"n_embd", width},
           {"n_head", heads},
           {"vocab_size", vocabulary},
           {"n_positions", seq}},
          "config.json"};
}

struct Setting {
  int replicas = 1, stages = 1;
  std::int64_t part = 1, rows = 1;  // of a step, all replicas together
  Pipeline pipeline = Pipeline::one_by_one;
  bool checkpoints = false;
};

double seconds(const model::ModelConfig& config, model::Settings settings,
               const gpu::CatalogueCard& card, const Setting& setting) {
  const int cards = setting.replicas * setting.stages;
  RatedCards rated{.kinds = {&card}, .kind_of_card = {}};
  rated.kind_of_card.resize(static_cast<std::size_t>(cards));
  settings.batch = setting.part;
  settings.task = model::Task::causal_lm;
  std::vector<PricedTraining> trainings;
  trainings.push_back({settings, PriceBook(Json::object(), ::testing::TempDir())});
  ModelPricer pricer(config, std::move(trainings), rated, {});
  const Form form{.rows = setting.part, .replicas = setting.replicas};
  std::vector<PlacedStage> stages;
  std::int64_t first = 0;
  for (int stage = 0; stage < setting.stages; ++stage) {
    const std::int64_t end = pricer.layers() * (stage + 1) / setting.stages;
    PlacedStage& placed = stages.emplace_back();
    placed.stage = {
        .form = form, .first = first, .count = end - first, .checkpointed = setting.checkpoints};
    for (int replica = 0; replica < setting.replicas; ++replica)
      placed.cards.push_back(replica * setting.stages + stage);
    first = end;
  }
  const auto times = [&](const Stage& stage, int kind) {
    LayerTimes sum;
    const std::vector<LayerTimes> layers = pricer.times(form, kind);
    for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer) {
      const LayerTimes& one = layers.at(static_cast<std::size_t>(layer));
      sum.forward += one.forward;
      sum.backward += one.backward + (stage.checkpointed ? one.again : 0);
      sum.optimizer += one.optimizer;
    }
    return sum;
  };
  const auto parts = static_cast<int>(setting.rows / setting.replicas / setting.part);
  return step_seconds(stages, rated.kind_of_card, setting.pipeline, parts, pricer, times);
}

model::Settings half(std::int64_t seq) {
  return {.seq = seq, .dtype = model::Dtype::bfloat16, .optimizer = model::Optimizer::adamw};
}

// Huang et al., "GPipe", NeurIPS 2019, table 3: a transformer of 48 layers in 32 parts on P100
// cards without NVLink, 1, 1.8 and 3.3 times as fast on 2, 4 and 8 of them.
TEST(PublishedPairs, GPipeIsFasterOnMoreCardsOverPcie) {
  const model::ModelConfig config = gpt(48, 2048, 32, 32000, 1024);
  const gpu::CatalogueCard& card = gpu::card_named("P100 16GB");
  model::Settings settings = half(1024);
  settings.dtype = model::Dtype::float32;
  const auto on = [&](int stages) {
    return seconds(config, settings, card,
                   {.stages = stages,
                    .part = 1,
                    .rows = 32,
                    .pipeline = Pipeline::gpipe,
                    .checkpoints = true});
  };
  EXPECT_GT(on(2), on(4));
  EXPECT_GT(on(4), on(8));
  EXPECT_NEAR(on(2) / on(4), 1.8, 0.3);
  EXPECT_NEAR(on(2) / on(8), 3.3, 0.4);
}

// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021
// (arXiv:2104.04473), figure 14: GPT of 5.9 B parameters on 64 A100, micro-batch 1: the more stages
// in place of replicas, the slower, for batches of 32, 128 and 512.
TEST(PublishedPairs, ReplicasBeatStagesThatTheMemoryDoesNotNeed) {
  const model::ModelConfig config = gpt(32, 3840, 32, 51200, 2048);
  const gpu::CatalogueCard& card = gpu::card_named("A100 80GB");
  for (const std::int64_t rows : {32, 128, 512}) {
    const auto with = [&](int stages) {
      return seconds(config, half(2048), card,
                     {.replicas = 64 / stages, .stages = stages, .part = 1, .rows = rows});
    };
    EXPECT_LT(with(2), with(8)) << rows;
    EXPECT_LT(with(8), with(32)) << rows;
  }
}

// The same, figure 11: eight stages, and a batch of 128 has more rows a second than one of 8.
TEST(PublishedPairs, ALargerBatchKeepsStagesBusy) {
  const model::ModelConfig config = gpt(24, 20480 / 4, 32, 51200, 2048);
  const gpu::CatalogueCard& card = gpu::card_named("A100 80GB");
  const auto of_row = [&](std::int64_t rows) {
    return seconds(config, half(2048), card, {.stages = 8, .part = 1, .rows = rows}) /
           static_cast<double>(rows);
  };
  EXPECT_LT(of_row(128), of_row(8));
}

// The same, figure 17: with 16 stages and batches that fit either way, computing activations again
// costs up to a third of the rows a second.
TEST(PublishedPairs, ComputingAgainCostsUpToAThird) {
  const model::ModelConfig config = gpt(80, 12288, 96, 51200, 2048);
  const gpu::CatalogueCard& card = gpu::card_named("A100 80GB");
  const auto with = [&](bool checkpoints) {
    return seconds(config, half(2048), card,
                   {.stages = 16, .part = 1, .rows = 16, .checkpoints = checkpoints});
  };
  EXPECT_LT(with(false), with(true));
  EXPECT_GT(with(false) / with(true), 0.66);
}

// 6 operations a parameter and token, of those in matrix products, at the rate of the data sheet.
TEST(StepSeconds, AreNoLessThanTheMatrixProductsNeed) {
  const gpu::CatalogueCard& card = gpu::card_named("RTX 5090");
  for (const auto& [name, layers, of_layer, head] :
       {std::tuple("llama-2-7b", 32, 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008, 32000.0 * 4096),
        std::tuple("llama-2-13b", 40, 4.0 * 5120 * 5120 + 3.0 * 5120 * 13824, 32000.0 * 5120),
        std::tuple("gpt-neox-20b", 44, 12.0 * 6144 * 6144, 50432.0 * 6144)}) {
    const model::ModelConfig config = model::model_named(name).config;
    const double flops = 6 * (layers * of_layer + head) * 32 * 1024;
    for (const Setting& setting : {Setting{.stages = 8, .part = 1, .rows = 32},
                                   Setting{.replicas = 2, .stages = 4, .part = 2, .rows = 32},
                                   Setting{.replicas = 8, .part = 4, .rows = 32}})
      EXPECT_GE(seconds(config, half(1024), card, setting), flops / (8 * *card.rates.bf16 * 1e12))
          << name;
  }
}

}  // namespace
}  // namespace headroom::plan
