// The model of a training, and what of it is trained: one builder for `headroom estimate` and
// `headroom train`, so that both price the same step.
//
//   const auto model = libtorch::on(device, [&] { return build_model(config, settings); });
//   choose_what_is_trained(*model, settings);
//   const auto parameters = trained(model->module());
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"
#include "headroom/models/model.h"
#include "headroom/nn/lora.h"

namespace headroom::recipe {

// On LibTorch's default device and of its default type; without values. Weights that are quantised
// take the memory of their packed form only. `part`: some of its layers, on one of several cards.
[[nodiscard]] std::shared_ptr<models::Model> build_model(
    const model::ModelConfig& config, const model::Settings& settings,
    const std::optional<models::Part>& part = {});

struct TrainedParts {
  // std::nullopt: as peft is mostly used, with alpha twice the rank and the type of the weights.
  std::optional<nn::LoraOptions> lora = {};
  // Where layers are checkpointed, the embeddings' outputs require gradients, as transformers has
  // it; Headroom's own checkpointing does not need them.
  bool input_gradients = true;
};
// With LoRA the adapters are trained, and a head that no checkpoint has; with a frozen backbone the
// heads; else everything. Returns the adapters; std::nullopt if there are none.
std::optional<nn::Lora> choose_what_is_trained(models::Model& model,
                                               const model::Settings& settings,
                                               const TrainedParts& parts = {});

// The parameters that require gradients.
[[nodiscard]] std::vector<at::Tensor> trained(torch::nn::Module& module);

}  // namespace headroom::recipe
