// The families of models, one per file in families/, and what they share.
#pragma once

#include <ATen/ops/dropout.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headroom/models/model.h"
#include "headroom/nn/activation.h"
#include "headroom/nn/fused_loss.h"
#include "headroom/nn/layers.h"

namespace headroom::models::detail {

using at::Tensor;

// Builds a model of one family for one of its tasks (model/tasks.h).
using Build =
    std::function<std::shared_ptr<Model>(const model::ModelConfig&, Task, const Settings&)>;

[[nodiscard]] Build llama_family();  // llama, mistral, qwen2, qwen3
[[nodiscard]] Build gemma_family();  // gemma, gemma2
[[nodiscard]] Build phi3_family();
[[nodiscard]] Build mixtral_family();
[[nodiscard]] Build bert_family();  // bert, roberta
[[nodiscard]] Build convnext_family();
[[nodiscard]] Build distilbert_family();
[[nodiscard]] Build gpt2_family();
[[nodiscard]] Build gpt_neo_family();
[[nodiscard]] Build gpt_neox_family();
[[nodiscard]] Build opt_family();
[[nodiscard]] Build phi_family();
[[nodiscard]] Build resnet_family();
[[nodiscard]] Build t5_family();
[[nodiscard]] Build vit_family();  // vit, deit

using Function = std::function<Tensor(const Tensor&)>;

// A head over a vocabulary: layers of its own (may be empty), then the projection to logits.
struct TokenHead {
  Function inner;
  std::shared_ptr<nn::Linear> projection;
  [[nodiscard]] Tensor operator()(const Tensor& states) const;
};
// The projection, with its adapter, for the fused loss.
[[nodiscard]] nn::FusedHead fused_head(const nn::Linear& projection);

// What of a model is here: all of it, or the part that the settings name.
class Here {
 public:
  Here(const model::ModelConfig& config, const Settings& settings);

  // What comes before the first layer, and after the last one.
  [[nodiscard]] bool begins() const { return begins_; }
  [[nodiscard]] bool ends() const { return ends_; }
  [[nodiscard]] bool has(std::int64_t layer) const { return first_ <= layer && layer < last_; }

  // An embedding of tokens, registered if it is here: for the tokens, tied to the head, or `also`
  // for another reason. One that is not has sizes and no memory.
  [[nodiscard]] std::shared_ptr<nn::Embedding> words(torch::nn::Module& of, const char* name,
                                                     std::int64_t rows, std::int64_t width,
                                                     std::int64_t padding = -1,
                                                     bool also = false) const;
  // Adds layer number `index` to a list if it is here.
  template <typename Layer, typename Make>
  void add(nn::List<Layer>& list, std::int64_t index, const Make& make) const {
    if (has(index))
      list.add(make());
    else
      list.skip();
  }

 private:
  bool begins_, ends_, ties_;
  std::int64_t first_, last_;  // beyond the last
};

// A model that is its own module.
class Net : public torch::nn::Module, public Model {
 public:
  torch::nn::Module& module() override { return *this; }

  [[nodiscard]] const Here& here() const { return here_; }
  // Runs layer number `index`, checkpointed if the settings say so.
  [[nodiscard]] Tensor run_layer(std::size_t index, const Function& layer,
                                 const Tensor& states) const;
  [[nodiscard]] nn::Tensors run_layer(std::size_t index,
                                      const std::function<nn::Tensors(const nn::Tensors&)>& layer,
                                      const nn::Tensors& inputs) const;

 protected:
  Net(model::ModelConfig config, Task task, const Settings& settings);

  [[nodiscard]] bool keeps_cache() const;
  // True if this batch's loss is computed in chunks.
  [[nodiscard]] bool chunks_loss(const Batch& batch) const {
    return settings().loss_chunk > 0 && batch.labels.defined();
  }
  [[nodiscard]] bool fuses_loss(const Batch& batch) const {
    return settings().fused_loss && batch.labels.defined();
  }
  // Sets the logits, and the task's loss over tokens if the batch has labels.
  void set_logits_and_loss(Output& output, const TokenHead& head, const Tensor& states,
                           const Batch& batch) const;
  // Adds the logits of a row's classes, and the loss if the batch has labels.
  [[nodiscard]] Output classified(Tensor logits, const Batch& batch, Output output = {}) const;
  // Of a part that does not end: hands on the states.
  [[nodiscard]] static Output handing_on(Tensor states) {
    return {.handed_on = {std::move(states)}};
  }

 private:
  [[nodiscard]] nn::Recompute recomputes(std::size_t index) const;

  const Here here_;
};

// Makes a module of this class and registers it under the name.
template <typename Layer, typename... Arguments>
std::shared_ptr<Layer> child(torch::nn::Module& of, const std::string& name,
                             Arguments&&... arguments) {
  return of.register_module(name, std::make_shared<Layer>(std::forward<Arguments>(arguments)...));
}

// Two projections, and an activation between them.
template <typename Projection>
class Mlp : public torch::nn::Module {
 public:
  Mlp(const char* up, const char* down, std::int64_t width, std::int64_t inner,
      nn::Activation activation, double dropout = 0)
      : up_(child<Projection>(*this, up, width, inner)),
        down_(child<Projection>(*this, down, inner, width)),
        activation_(std::move(activation)),
        dropout_(dropout) {}

  Tensor operator()(const Tensor& x) const {
    Tensor inner = (*up_)(x);
    inner = activation_(inner);
    inner = (*down_)(inner);
    return at::dropout(inner, dropout_, is_training());
  }

 private:
  const std::shared_ptr<Projection> up_, down_;
  const nn::Activation activation_;
  const double dropout_;
};

// transformers' apply_chunking_to_forward along the tokens: runs `part` on this many tokens at a
// time and concatenates the results; 0: on all at once. Throws UsageError if `tokens` does not
// divide the length.
[[nodiscard]] Tensor in_chunks(const Function& part, std::int64_t tokens, const Tensor& states);

using Cache = std::vector<std::pair<Tensor, Tensor>>;
// transformers' DynamicCache at its first use: concatenates keys and values to an empty cache,
// which copies them, and adds the copies to `cache`.
void keep(Cache* cache, Tensor& keys, Tensor& values);

}  // namespace headroom::models::detail
