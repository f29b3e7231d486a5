#include "headroom/models/model.h"

#include <torch/nn/module.h>

#include <map>

#include "headroom/base/error.h"
#include "headroom/model/can_run.h"
#include "headroom/model/shapes.h"
#include "headroom/model/tasks.h"
#include "headroom/models/detail/family.h"

namespace headroom::models {
namespace {

using detail::Build;
using model::ModelConfig;

const std::map<std::string, Build>& builders() {
  static const std::map<std::string, Build> all = {
      {"bert", detail::bert_family()},         {"distilbert", detail::distilbert_family()},
      {"llama", detail::llama_family()},       {"mistral", detail::llama_family()},
      {"qwen2", detail::llama_family()},       {"qwen3", detail::llama_family()},
      {"roberta", detail::bert_family()},      {"t5", detail::t5_family()},
      {"gemma", detail::gemma_family()},       {"gemma2", detail::gemma_family()},
      {"phi3", detail::phi3_family()},         {"mixtral", detail::mixtral_family()},
      {"gpt2", detail::gpt2_family()},         {"gpt_neo", detail::gpt_neo_family()},
      {"gpt_neox", detail::gpt_neox_family()}, {"opt", detail::opt_family()},
      {"phi", detail::phi_family()},           {"vit", detail::vit_family()},
      {"deit", detail::vit_family()},          {"resnet", detail::resnet_family()},
      {"convnext", detail::convnext_family()},
  };
  return all;
}

void check(const Checkpointing& checkpointing) {
  if (checkpointing.every < 1)
    throw UsageError(expectation("Checkpointing", "every layer, or every n-th",
                                 "every " + std::to_string(checkpointing.every), "1"));
  if (checkpointing.but_attention && checkpointing.how == nn::Recompute::reentrant)
    throw UsageError(expectation("Checkpointing", "the nonreentrant form, to leave attention out",
                                 "the reentrant one", "nn::Recompute::nonreentrant"));
}

void check(const Settings& settings, Task task) {
  if ((settings.loss_chunk > 0 || settings.fused_loss) && !model::is_over_tokens(task))
    throw UsageError(expectation("build", "a loss over tokens, to take it in parts",
                                 model::to_string(task), "the full loss"));
  if (settings.loss_chunk < 0)
    throw UsageError(expectation("build", "chunks of a loss of 1 token or more, or 0 for all",
                                 std::to_string(settings.loss_chunk)));
  if (settings.loss_chunk > 0 && settings.fused_loss)
    throw UsageError(expectation("build", "a loss in chunks or a fused one", "both", "the latter"));
}

void check(const Part& part, const ModelConfig& config) {
  const std::int64_t layers = model::layer_count(config);
  if (part.first < 0 || part.count < 1 || part.first + part.count > layers)
    throw UsageError(expectation(
        "build", "a part of the model's " + std::to_string(layers) + " layers",
        std::to_string(part.count) + " from layer " + std::to_string(part.first) + " on"));
}

}  // namespace

void Model::train(bool on) {
  module().train(on);
}

void Model::set_checkpointing(const Checkpointing& checkpointing) {
  check(checkpointing);
  settings_.checkpointing = checkpointing;
}

void Model::set_fused_loss(bool fused) {
  Settings settings = settings_;
  settings.fused_loss = fused;
  check(settings, task_);
  settings_ = settings;
}

std::shared_ptr<Model> build(const ModelConfig& config, const Settings& settings) {
  check(settings.checkpointing);
  const Task task = model::task_for(config, settings.task);
  check(settings, task);
  if (settings.part) check(*settings.part, config);
  Settings resolved = settings;
  resolved.task = task;
  resolved.attention = model::attention_of(config, settings.transformers, settings.attention);
  return builders().at(config.type())(config, task, resolved);
}

}  // namespace headroom::models
