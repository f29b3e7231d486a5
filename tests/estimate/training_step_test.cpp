#include "headroom/estimate/training_step.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/can_run.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate {
namespace {

using model::Settings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

model::ModelConfig tiny(const std::string& type) {
  Json file = {{"model_type", type},       {"hidden_size", 64},      {"intermediate_size", 128},
               {"num_attention_heads", 4}, {"num_hidden_layers", 2}, {"vocab_size", 512}};
  if (type == "vit") file.update({{"image_size", 32}, {"patch_size", 16}});
  return model::ModelConfig(file, "a tiny " + type);
}

Settings short_run() {
  Settings settings;
  settings.batch = 2;
  settings.seq = 32;
  return settings;
}

// Its numbers are random instead of none.
void fill(const TrainingStep& step) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  for (const auto& [name, parameter] : step.subject.parameters) {
    torch::Tensor values = parameter;
    values.copy_(torch::randn(parameter.sizes()) * 0.05 + (name.ends_with("norm.weight") ? 1 : 0));
  }
  for (const torch::Tensor& input : step.subject.inputs) {
    torch::Tensor values = input;
    values.copy_(torch::randint(2, input.sizes()));
  }
}

std::vector<std::string> trained(const TrainingStep& step) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : step.subject.parameters)
    if (parameter.requires_grad()) names.push_back(name);
  return names;
}

std::vector<std::string> trained(const std::string& type, const Settings& settings) {
  return trained(training_step(tiny(type), settings, torch::kMeta));
}

std::int64_t peak_of(const std::string& type, const Settings& settings) {
  const auto make = [&](c10::Device device) {
    return training_step(tiny(type), settings, device).subject;
  };
  return dryrun::dry_run("unlimited", make, {.keep_trace = false}).peak.active.count;
}

TEST(TrainingStep, WithLoraTrainsAdaptersInFloat32OrInTheWeightsType) {
  Settings settings = short_run();
  settings.dtype = model::Dtype::bfloat16;
  settings.lora_rank = 4;
  for (const auto& [name, parameter] :
       training_step(tiny("llama"), settings, torch::kMeta).subject.parameters)
    EXPECT_EQ(parameter.scalar_type() == torch::kFloat, name.find("lora_") != std::string::npos)
        << name;
  settings.lora_dtype = model::LoraDtype::weights;
  const TrainingStep step = training_step(tiny("llama"), settings, torch::kMeta);
  EXPECT_THAT(trained(step), ElementsAre("model.layers.0.self_attn.q_proj.lora_A.weight",
                                         "model.layers.0.self_attn.q_proj.lora_B.weight",
                                         "model.layers.0.self_attn.v_proj.lora_A.weight",
                                         "model.layers.0.self_attn.v_proj.lora_B.weight",
                                         "model.layers.1.self_attn.q_proj.lora_A.weight",
                                         "model.layers.1.self_attn.q_proj.lora_B.weight",
                                         "model.layers.1.self_attn.v_proj.lora_A.weight",
                                         "model.layers.1.self_attn.v_proj.lora_B.weight"));
  for (const auto& [name, parameter] : step.subject.parameters)
    EXPECT_EQ(parameter.scalar_type(), torch::kBFloat16) << name;
  settings.lora_targets = {"k_proj", "gat_proj"};
  EXPECT_THROW((void)trained("llama", settings), UsageError);
}

TEST(TrainingStep, WithLoraTrainsAClassifiersHeadToo) {
  Settings settings = short_run();
  settings.lora_rank = 4;
  settings.lora_targets = {"1.attention.self.query"};
  settings.task = model::Task::sequence_classification;
  EXPECT_THAT(trained("bert", settings),
              ElementsAre("bert.encoder.layer.1.attention.self.query.lora_A.weight",
                          "bert.encoder.layer.1.attention.self.query.lora_B.weight",
                          "classifier.weight", "classifier.bias"));
}

TEST(TrainingStep, WithAFrozenBackboneTrainsTheHead) {
  Settings settings = short_run();
  settings.freeze_backbone = true;
  EXPECT_THAT(trained("vit", settings), ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(trained("llama", settings), ElementsAre("lm_head.weight"));
  EXPECT_LT(peak_of("llama", settings), peak_of("llama", short_run()) / 2);
}

// 64 tokens, 512 classes: three float tensors of logits at the peak of the loss, 128 KiB each; of
// 16 tokens at a time 32 KiB. The difference at the end of forward and the beginning of backward.
TEST(TrainingStep, WithALossInChunksKeepsOneChunksLogits) {
  Settings settings = short_run();
  settings.batch = 64;
  settings.optimizer = model::Optimizer::none;
  const std::int64_t full = peak_of("llama", settings);
  settings.loss = model::LossForm::chunked;
  settings.loss_chunk = 512;
  EXPECT_LT(peak_of("llama", settings), full - 2 * (64 * 32 - 512) * 512 * 4);
  EXPECT_THROW((void)trained("vit", settings), UsageError);
}

TEST(TrainingStep, WithAFusedLossHasNoLogits) {
  Settings settings = short_run();
  settings.batch = 64;
  settings.optimizer = model::Optimizer::none;
  const std::int64_t full = peak_of("llama", settings);
  settings.loss = model::LossForm::fused;
  EXPECT_LT(peak_of("llama", settings), full - 2 * (64 * 32 - 512) * 512 * 4);
  EXPECT_THROW((void)trained("vit", settings), UsageError);
}

// The estimate, which has no data, requests the same bytes as the step that computes.
TEST(TrainingStep, WithAFusedLossTakesTheSameMemoryWithAndWithoutData) {
  for (const char* type : {"llama", "gemma2", "bert"})
    for (const char* words : {R"({})", R"({"autocast":"bf16"})", R"({"dtype":"bfloat16"})",
                              R"({"lora_rank":2,"checkpointing":"full"})"}) {
      Settings settings = model::settings_from_json(parse_json(words, "settings"));
      settings.batch = 2;
      settings.seq = 32;
      settings.loss = model::LossForm::fused;
      const auto peak = [&](sim::Mode mode) {
        const sim::Simulation box = sim::simulate("1x1GiB", {.mode = mode});
        const TrainingStep step = training_step(tiny(type), settings, box.device(0));
        if (mode == sim::Mode::compute) fill(step);
        box.card(0).reset_peaks();
        step.subject.step();
        step.subject.step();
        return box.card(0).statistics().requested_bytes.all.peak;
      };
      EXPECT_EQ(peak(sim::Mode::shape_only), peak(sim::Mode::compute)) << type << words;
    }
}

TEST(TrainingStep, OfEverySettingRunsWithFiniteResults) {
  std::vector<Settings> runs(8, short_run());
  runs[0].lora_rank = 2;
  runs[1].lora_rank = 2;
  runs[1].checkpoint_every = 1;
  runs[1].checkpointing_kind = model::CheckpointingKind::reentrant;
  runs[2].freeze_backbone = true;
  runs[3].loss = model::LossForm::chunked;
  runs[3].loss_chunk = 10;
  runs[3].accumulation = 2;
  runs[4].autocast = model::Autocast::bf16;
  runs[4].checkpoint_every = 1;
  runs[5].autocast = model::Autocast::fp16;
  runs[5].clip = 1.0;
  runs[6].loss = model::LossForm::fused;
  runs[6].accumulation = 2;
  runs[7].loss = model::LossForm::fused;
  runs[7].autocast = model::Autocast::fp16;
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const Settings& settings : runs) {
    const TrainingStep step = training_step(tiny("llama"), settings, box.device(0));
    fill(step);
    std::vector<torch::Tensor> before;
    for (const auto& [name, parameter] : step.subject.parameters)
      before.push_back(parameter.detach().clone());
    step.subject.step();
    step.subject.step();
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto& [name, parameter] = step.subject.parameters[i];
      EXPECT_TRUE(parameter.isfinite().all().item<bool>()) << name;
      EXPECT_EQ(parameter.equal(before[i]), !parameter.requires_grad()) << name;
    }
  }
}

// One predicted token: the gradients of its logits are near 1, times 65536 and what the head reads
// beyond float16. So the first steps are left out, until the factor is small enough.
TEST(TrainingStep, WithFloat16AutocastScalesTheLoss) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const auto changed = [&](model::Autocast autocast, int steps) {
    Settings settings;
    settings.seq = 2;
    settings.autocast = autocast;
    const TrainingStep step = training_step(tiny("llama"), settings, box.device(0));
    fill(step);
    const torch::Tensor head = step.model->module().named_parameters()["lm_head.weight"];
    const torch::Tensor before = head.detach().clone();
    for (int i = 0; i < steps; ++i) step.subject.step();
    EXPECT_TRUE(head.isfinite().all().item<bool>());
    return !head.equal(before);
  };
  EXPECT_TRUE(changed(model::Autocast::bf16, 1));
  EXPECT_FALSE(changed(model::Autocast::fp16, 1));
  EXPECT_TRUE(changed(model::Autocast::fp16, 8));
}

TEST(CannotRun, NamesUnsupportedSettings) {
  Settings settings;
  settings.lora_rank = 8;
  settings.freeze_backbone = true;
  settings.loss = model::LossForm::chunked;
  EXPECT_TRUE(model::cannot_run(settings).empty());
  settings.quantize = model::Quantize::int4;
  EXPECT_TRUE(model::cannot_run(settings).empty());
  settings.offload.optimizer = true;
  settings.zero = 2;
  EXPECT_THAT(model::cannot_run(settings), ElementsAre("--offload optimizer", "--zero 2"));
  try {
    (void)trained("llama", settings);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--offload optimizer, --zero 2"));
  }
}

TEST(Quantize, IsRefusedForWeightsThatAreTrained) {
  Settings settings;
  settings.quantize = model::Quantize::int4;
  EXPECT_THAT([&] { (void)trained("llama", settings); },
              testing::ThrowsMessage<UsageError>(
                  testing::AllOf(HasSubstr("--lora-rank 8"), HasSubstr("adamw8bit"))));
  settings.mode = model::Mode::inference;
  EXPECT_NO_THROW(model::check_quantize(settings));
}

}  // namespace
}  // namespace headroom::estimate
