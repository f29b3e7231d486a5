// Published models in the zoo, in fewer bits: quantised weights below adapters and below a trained
// head, weights that the ladder quantises, pure bf16, and optimizer states in 8 bit.
#include <nlohmann/json.hpp>

#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/nn/freeze.h"
#include "headroom/nn/lora.h"
#include "headroom/nn/quantise.h"
#include "headroom/train/model_objective.h"
#include "zoo.h"

namespace headroom::train {
namespace {

using torch::Tensor;

// One layer; its wider weights have 4096 numbers, enough for states in 8 bit.
std::shared_ptr<models::Model> small_gpt2(c10::Device device, at::ScalarType type) {
  const Json config{{"model_type", "gpt2"}, {"n_embd", 32},      {"n_head", 2},
                    {"n_layer", 1},         {"n_positions", 16}, {"vocab_size", 96}};
  torch::manual_seed(1);
  auto model = libtorch::on(device, type, [&] { return models::build({config, "a small GPT-2"}); });
  models::initialise(*model);
  model->train();
  return model;
}

Animal training_of(const std::shared_ptr<models::Model>& model,
                   std::unique_ptr<optim::Optimizer> optimizer, const StepOptions& options,
                   const ModelObjectiveOptions& objective = {}) {
  Animal animal;
  animal.modules = {std::shared_ptr<torch::nn::Module>(model, &model->module())};
  animal.optimizers.push_back(std::move(optimizer));
  animal.steps.push_back(std::make_unique<Step>(model->module(), *animal.optimizers.back(),
                                                objective_of(model, objective), options));
  torch::manual_seed(5);
  for (int i = 0; i < 2; ++i) {
    models::Batch batch;
    batch.tokens = torch::randint(96, {4, 8});
    batch.labels = batch.tokens;
    animal.batches.push_back(tensors_of(batch));
  }
  torch::manual_seed(6);
  return animal;
}

std::vector<Tensor> trained_of(models::Model& model) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : model.module().parameters())
    if (parameter.requires_grad()) all.push_back(parameter);
  return all;
}

std::unique_ptr<optim::Optimizer> adamw_of(models::Model& model) {
  return optim::make_adamw(trained_of(model),
                           {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused});
}

Animal adapters_over_nf4(c10::Device device, const StepOptions& options) {
  const auto model = small_gpt2(device, at::kBFloat16);
  nn::quantise(model->module(), {.format = kernels::Format::nf4});
  static_cast<void>(
      nn::add_lora(model->module(), {.rank = 2, .dropout = 0.1, .targets = {"all-linear"}}));
  return training_of(model, adamw_of(*model), options);
}

Animal head_over_int8(c10::Device device, const StepOptions& options) {
  const auto model = small_gpt2(device, at::kFloat);
  nn::quantise(model->module(), {.format = kernels::Format::int8});
  nn::freeze_all_but_heads(model->module());
  return training_of(model, adamw_of(*model), options);
}

Animal quantised_by_the_ladder(c10::Device device, const StepOptions& options) {
  const auto model = small_gpt2(device, at::kFloat);
  static_cast<void>(nn::add_lora(model->module(), {.rank = 2, .targets = {"all-linear"}}));
  return training_of(model, adamw_of(*model), options, {.quantises = true});
}

Animal pure_bf16(c10::Device device, const StepOptions& options) {
  const auto model = small_gpt2(device, at::kBFloat16);
  return training_of(
      model,
      optim::make_adamw(trained_of(*model), {.learning_rate = 1e-2,
                                             .form = optim::OptimizerForm::fused,
                                             .rounding = model::Rounding::stochastic}),
      options);
}

Animal states_in_8_bit(c10::Device device, const StepOptions& options) {
  const auto model = small_gpt2(device, at::kFloat);
  return training_of(model,
                     optim::make_optimizer(model::Optimizer::adamw8bit, optim::OptimizerForm::fused,
                                           trained_of(*model)),
                     options);
}

}  // namespace

const std::vector<Species>& zoo_of_models() {
  static const std::vector<Species> all = {{"adapters_over_nf4", adapters_over_nf4},
                                           {"head_over_int8", head_over_int8},
                                           {"quantised_by_the_ladder", quantised_by_the_ladder},
                                           {"pure_bf16", pure_bf16},
                                           {"states_in_8_bit", states_in_8_bit}};
  return all;
}

}  // namespace headroom::train
