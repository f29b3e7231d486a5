// The families of models, one a file in families/, and what they have in common.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/models/model.h"
#include "headroom/nn/activation.h"
#include "headroom/nn/layers.h"

namespace headroom::models::detail {

using at::Tensor;

// What a model type can be built for (the usual task first), and how.
struct Family {
  std::vector<Task> tasks;
  std::function<std::shared_ptr<Model>(const formula::ModelConfig&, Task, const Settings&)> build;
};

[[nodiscard]] Family llama_family();  // llama, mistral, qwen2, qwen3
[[nodiscard]] Family gpt2_family();

// A model and the module that it is.
class Net : public torch::nn::Module, public Model {
 public:
  torch::nn::Module& module() override { return *this; }

 protected:
  using Model::Model;

  // Layer number `index` of the model, checkpointed or not, as the settings say.
  Tensor run_layer(std::size_t index, const std::function<Tensor(const Tensor&)>& layer,
                   const Tensor& states) const;
  [[nodiscard]] bool keeps_cache() const;
};

// A module of this class, registered under the name.
template <typename Layer, typename... Arguments>
std::shared_ptr<Layer> child(torch::nn::Module& of, const std::string& name,
                             Arguments&&... arguments) {
  return of.register_module(name, std::make_shared<Layer>(std::forward<Arguments>(arguments)...));
}

// The function that a key names. Throws InputError.
[[nodiscard]] nn::Activation activation(const formula::ModelConfig& config, const char* key);

// torch.nn.functional.dropout.
[[nodiscard]] Tensor dropout(const Tensor& x, double share, bool training);

using Cache = std::vector<std::pair<Tensor, Tensor>>;
// transformers' DynamicCache: keys and values so far, copied behind those that are there.
void keep(Cache* cache, Tensor& keys, Tensor& values);

}  // namespace headroom::models::detail
