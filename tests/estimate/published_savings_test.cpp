// What weights and states in fewer bits save, beside what others measured on cards. Differences are
// compared, because what is common to both runs is not known to the byte.
#include <gtest/gtest.h>

#include "headroom/dryrun/dry_run.h"
#include "headroom/estimate/estimate.h"
#include "headroom/kernels/packed.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/model.h"
#include "headroom/nn/quantise.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate {
namespace {

using model::Dtype;
using model::Optimizer;
using model::Settings;

constexpr double kGiB = 1 << 30, kMiB = 1 << 20, kGB = 1e9;

double allocated_at_peak(const char* model, const Settings& settings) {
  const Estimate estimate =
      estimate_memory(model::model_named(model), settings, dryrun::card_for("unlimited"));
  return static_cast<double>(estimate.report.peak.allocated.count);
}

// The published difference, and half a unit of its last digit, or 5 %.
void expect_published(double ours, double published, double unit) {
  EXPECT_NEAR(ours, published, std::max(0.05 * published, unit));
}

double saved_by_8_bit_states(const char* model, Settings settings) {
  const double before = allocated_at_peak(model, settings);
  settings.optimizer = Optimizer::adamw8bit;
  return before - allocated_at_peak(model, settings);
}

// torchao, torchao/optim/README.md: Llama-2-7B in bf16 on an A100, AdamW 51.6 and 8-bit 39.3.
TEST(PublishedSavings, OfTorchaosEightBitAdamWOnLlama2) {
  const Settings settings{.batch = 1, .seq = 2048, .dtype = Dtype::bfloat16, .checkpoint_every = 1};
  expect_published(saved_by_8_bit_states("llama-2-7b", settings) / kGiB, 51.6 - 39.3, 0.1);
}

// The same page: ViT-H in bf16 with AMP, 12.23 and 8.33.
TEST(PublishedSavings, OfTorchaosEightBitAdamWOnAVisionTransformer) {
  const Settings settings{.batch = 8, .autocast = model::Autocast::bf16};
  expect_published(saved_by_8_bit_states("vit-huge", settings) / kGB, 12.23 - 8.33, 0.01);
}

// transformers' docs, "Model training anatomy" and "Performance": BERT-large at 4 x 512, 14,949 and
// 13,085 MiB.
TEST(PublishedSavings, OfEightBitAdamOnBertLarge) {
  const Settings settings{.task = model::Task::sequence_classification, .batch = 4, .seq = 512};
  expect_published(saved_by_8_bit_states("bert-large", settings) / kMiB, 14949 - 13085, 1);
}

// torchtune 0.5's memory page: llama-3.2-3b, 2 x 4096, LoRA of rank 64 at 8.5 GiB, QLoRA 4.6.
TEST(PublishedSavings, OfQuantisedWeightsBelowAdapters) {
  Settings settings{.batch = 2,
                    .seq = 4096,
                    .dtype = Dtype::bfloat16,
                    .checkpoint_every = 1,
                    .lora_rank = 64,
                    .lora_targets = {"all-linear"},
                    .loss = model::LossForm::chunked,
                    .loss_chunk = 1024};
  const double lora = allocated_at_peak("llama-3.2-3b", settings);
  settings.quantize = model::Quantize::int4;
  expect_published((lora - allocated_at_peak("llama-3.2-3b", settings)) / kGiB, 8.5 - 4.6, 0.1);
}

// The same page: full training of this model at 17.6 GiB, with activations on the host, 8-bit
// states and each update in the backward pass, where gradients do not live. A step that can be
// undone keeps its gradients, 6.0 GiB; states in 4 bit make up for them.
TEST(PublishedSavings, AFullTrainingOf3BTakesLessThanTorchtunes) {
  const Settings settings{.batch = 2,
                          .seq = 4096,
                          .dtype = Dtype::bfloat16,
                          .optimizer = Optimizer::adamw4bit,
                          .rounding = model::Rounding::stochastic,
                          .checkpoint_every = 1,
                          .loss = model::LossForm::fused};
  EXPECT_LT(allocated_at_peak("llama-3.2-3b", settings) / kGiB, 17.6);
}

// The packed weights of a whole model, with scales in float and with scales in 8 bit.
double saved_by_double_quantisation(const char* name) {
  const sim::Simulation box = sim::simulate("1x64GiB");
  std::int64_t bytes[2] = {};
  for (const bool nested : {false, true}) {
    const auto model = libtorch::on(box.device(0), at::kBFloat16, [&] {
      const nn::WithoutMemoryScope scope;
      return models::build(model::model_named(name).config);
    });
    nn::quantise(model->module(), {.format = kernels::Format::nf4, .nested = nested});
    bytes[nested] = box.card(0).statistics().requested_bytes.all.current;
  }
  return static_cast<double>(bytes[0] - bytes[1]);
}

// litgpt's docs on quantisation: NF4 and NF4 with double quantisation, in GB.
TEST(PublishedSavings, OfScalesInFewerBits) {
  expect_published(saved_by_double_quantisation("llama-2-7b") / kGB, 14.14 - 13.84, 0.01);
  expect_published(saved_by_double_quantisation("phi-1.5") / kGB, 3.78 - 3.72, 0.01);
}

}  // namespace
}  // namespace headroom::estimate
