#include "headroom/recipe/model.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <set>
#include <string>

#include "headroom/kernels/packed.h"
#include "headroom/libtorch/on.h"
#include "headroom/nn/freeze.h"
#include "headroom/nn/quantise.h"
#include "headroom/recipe/techniques.h"

namespace headroom::recipe {
namespace {

using model::Settings;

// Then it is trained beside adapters: the head is new, as after from_pretrained.
bool has_new_head(const models::Model& model) {
  return model.task() == model::Task::sequence_classification ||
         model.task() == model::Task::image_classification;
}

nn::LoraOptions usual_adapters(const Settings& settings) {
  nn::LoraOptions options{.rank = settings.lora_rank,
                          .alpha = 2 * static_cast<double>(settings.lora_rank),
                          .float32 = settings.lora_dtype == model::LoraDtype::float32};
  if (!settings.lora_targets.empty()) options.targets = settings.lora_targets;
  return options;
}

// The model that this one is a part of, without data: what is chosen by name is chosen there.
std::shared_ptr<models::Model> whole_of(const models::Model& part) {
  models::Settings of = part.settings();
  of.part.reset();
  return libtorch::on(at::kMeta, at::kFloat, [&] { return models::build(part.config(), of); });
}

nn::Lora add_adapters(models::Model& model, const nn::LoraOptions& options) {
  if (!model.settings().part) return nn::add_lora(model.module(), options);
  std::set<std::string> here;
  for (const auto& one : model.module().named_modules("", false)) here.insert(one.key());
  std::vector<nn::LoraLayer> layers;
  for (const std::string& name : nn::lora_layers(whole_of(model)->module(), options.targets))
    if (here.contains(name))
      layers.push_back({.name = name, .rank = options.rank, .alpha = options.alpha});
  nn::LoraOptions of_part = options;
  of_part.is_part = true;
  return nn::add_lora_to(model.module(), layers, of_part);
}

// A head that is tied to the embedding trains that in the first part, too.
void freeze_all_but_heads(models::Model& model) {
  if (!model.settings().part) return nn::freeze_all_but_heads(model.module());
  const auto whole = whole_of(model);
  nn::freeze_all_but_heads(whole->module());
  const auto all = whole->module().named_parameters();
  for (auto& parameter : model.module().named_parameters())
    parameter->set_requires_grad(all[parameter.key()].requires_grad());
}

}  // namespace

std::shared_ptr<models::Model> build_model(const model::ModelConfig& config,
                                           const Settings& settings,
                                           const std::optional<models::Part>& part) {
  models::Settings of;
  of.part = part;
  of.task = settings.task;
  of.attention = settings.attention;
  of.transformers = settings.transformers;
  of.use_cache = settings.use_cache;
  of.loss_chunk = settings.loss_chunk;
  of.fused_loss = settings.loss == model::LossForm::fused;
  if (settings.checkpoint_every > 0)
    of.checkpointing = {.how = settings.checkpointing_kind == model::CheckpointingKind::reentrant
                                   ? nn::Recompute::reentrant
                                   : nn::Recompute::nonreentrant,
                        .every = static_cast<int>(settings.checkpoint_every)};
  std::shared_ptr<models::Model> model;
  {
    std::optional<nn::WithoutMemoryScope> without_memory;
    if (settings.quantize != model::Quantize::none) without_memory.emplace();
    model = models::build(config, of);
  }
  if (settings.quantize != model::Quantize::none)
    nn::quantise(model->module(),
                 {.format = settings.quantize == model::Quantize::int8 ? kernels::Format::int8
                                                                       : kernels::Format::nf4});
  nn::give_memory(model->module());
  put_into_form(*model, settings);
  return model;
}

std::optional<nn::Lora> choose_what_is_trained(models::Model& model, const Settings& settings,
                                               const TrainedParts& parts) {
  torch::nn::Module& module = model.module();
  const bool asks_inputs = parts.input_gradients && settings.checkpoint_every > 0;
  if (settings.lora_rank > 0) {
    nn::Lora lora = add_adapters(model, parts.lora ? *parts.lora : usual_adapters(settings));
    if (settings.freeze_backbone || has_new_head(model)) nn::train_heads(module);
    if (asks_inputs) nn::require_input_gradients(module);
    return lora;
  }
  if (settings.freeze_backbone) {
    freeze_all_but_heads(model);
    // transformers 5 does this where it enables checkpointing.
    const bool of_tokens = model.task() != model::Task::image_classification;
    if (asks_inputs && of_tokens && settings.transformers == model::Transformers::v5)
      nn::require_input_gradients(module);
  }
  return {};
}

std::vector<at::Tensor> trained(torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters())
    if (parameter.requires_grad()) all.push_back(parameter);
  return all;
}

}  // namespace headroom::recipe
