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
[[nodiscard]] Family gemma_family();  // gemma, gemma2
[[nodiscard]] Family phi3_family();
[[nodiscard]] Family mixtral_family();
[[nodiscard]] Family bert_family();  // bert, roberta
[[nodiscard]] Family convnext_family();
[[nodiscard]] Family distilbert_family();
[[nodiscard]] Family gpt2_family();
[[nodiscard]] Family gpt_neo_family();
[[nodiscard]] Family gpt_neox_family();
[[nodiscard]] Family opt_family();
[[nodiscard]] Family phi_family();
[[nodiscard]] Family resnet_family();
[[nodiscard]] Family t5_family();
[[nodiscard]] Family vit_family();  // vit, deit

// A model and the module that it is.
class Net : public torch::nn::Module, public Model {
 public:
  torch::nn::Module& module() override { return *this; }

 protected:
  using Model::Model;

  // Layer number `index` of the model, checkpointed or not, as the settings say.
  Tensor run_layer(std::size_t index, const std::function<Tensor(const Tensor&)>& layer,
                   const Tensor& states) const;
  nn::Tensors run_layer(std::size_t index,
                        const std::function<nn::Tensors(const nn::Tensors&)>& layer,
                        const nn::Tensors& inputs) const;
  [[nodiscard]] bool keeps_cache() const;
  // Whether this batch's loss is taken in chunks.
  [[nodiscard]] bool chunks_loss(const Batch& batch) const {
    return settings().loss_chunk > 0 && batch.labels.defined();
  }

 private:
  [[nodiscard]] nn::Recompute recomputes(std::size_t index) const;
};

// A module of this class, registered under the name.
template <typename Layer, typename... Arguments>
std::shared_ptr<Layer> child(torch::nn::Module& of, const std::string& name,
                             Arguments&&... arguments) {
  return of.register_module(name, std::make_shared<Layer>(std::forward<Arguments>(arguments)...));
}

// The function that a key names. Throws InputError.
[[nodiscard]] nn::Activation activation(const formula::ModelConfig& config, const char* key);

// The row of an embedding of so many rows that gets no gradient, `pad_token_id`; -1: none. Files
// may count it from the end. Throws InputError for one that is not there.
[[nodiscard]] std::int64_t padding_row(const formula::ModelConfig& config, std::int64_t rows);

// torch.nn.functional.dropout.
[[nodiscard]] Tensor dropout(const Tensor& x, double share, bool training);

// transformers' apply_chunking_to_forward along the tokens: `part` on so many at a time, side by
// side again afterwards; 0: on all at once. Throws UsageError where they do not divide the length.
[[nodiscard]] Tensor in_chunks(const std::function<Tensor(const Tensor&)>& part,
                               std::int64_t tokens, const Tensor& states);

using Cache = std::vector<std::pair<Tensor, Tensor>>;
// transformers' DynamicCache: keys and values so far, copied behind those that are there.
void keep(Cache* cache, Tensor& keys, Tensor& values);

}  // namespace headroom::models::detail
