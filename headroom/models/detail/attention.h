// Attention as transformers computes it: with scaled_dot_product_attention
// (integrations/sdpa_attention.py), or as matrix products with a softmax between (eager).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/models/detail/family.h"
#include "headroom/models/detail/masks.h"
#include "headroom/models/detail/rotary.h"

namespace headroom::models::detail {

struct AttentionOptions {
  double dropout = 0;  // 0 when the model is not training
  std::optional<double> scaling = {};
  // Query heads per key head; std::nullopt if the module has no num_key_value_groups.
  std::optional<std::int64_t> groups = {};
  // std::nullopt: causal if there is no mask, more than one query, and `module_is_causal`.
  std::optional<bool> is_causal = {};
  bool module_is_causal = true;
  double softcap = 0;  // Gemma-2's, eager form only; 0: none
};

// Queries, keys and values are [batch, heads, length, width]. The result is [batch, length, heads,
// width], contiguous.
[[nodiscard]] at::Tensor sdpa(const at::Tensor& q, at::Tensor k, at::Tensor v, at::Tensor mask,
                              const AttentionOptions& options);

// transformers' functions return the weights with the result, and layers hold the weights until
// they return.
struct Attended {
  at::Tensor out;      // [batch, length, heads, width]
  at::Tensor weights;  // [batch, heads, length, length]; undefined in the sdpa form
};
// The eager form is Llama's eager_attention_forward, which most decoders share: it computes the
// softmax in float.
[[nodiscard]] Attended attended(Attention kind, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const at::Tensor& mask,
                                const AttentionOptions& options);

// Splits projected states [batch, length, width] into heads of this width.
[[nodiscard]] at::Tensor heads_of(const at::Tensor& projected, std::int64_t head_width);

// A layer's inputs besides the hidden states; a model sets those that its layers get in Python.
struct LayerInputs {
  Attention attention = Attention::sdpa;
  Transformers transformers = Transformers::v5;
  // Unused by layers, but passed to each, so checkpointed layers keep them.
  at::Tensor positions, places;
  CosSin rotation;
  at::Tensor mask;
  Cache* cache = nullptr;
  std::vector<at::Tensor>* routes = nullptr;  // layers with experts add their router's logits

  [[nodiscard]] bool newest() const { return transformers == Transformers::v5; }
  // For the masks of layers with these inputs, with hidden states of this type.
  [[nodiscard]] MaskOptions mask_options(at::ScalarType type) const {
    return {.attention = attention,
            .transformers = transformers,
            .type = type,
            .with_cache = cache != nullptr};
  }
};

// The states from a layer's result, which is the states, or these and its attention weights.
[[nodiscard]] inline Tensor states_of(Tensor returned) {
  return returned;
}
[[nodiscard]] inline Tensor states_of(const nn::Tensors& returned) {
  return returned[0];
}

// Runs a model's layers that are here, one after the other.
template <typename Layer>
[[nodiscard]] Tensor through_layers(const Net& net, const nn::List<Layer>& layers,
                                    const std::shared_ptr<const LayerInputs>& with, Tensor states) {
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (layers[i])
      states = net.run_layer(
          i, [layer = layers[i], with](const Tensor& x) { return states_of((*layer)(x, *with)); },
          states);
  return states;
}

// The same for layers that also return their attention weights, which the model holds until the
// next layer has run. So reentrant checkpointing treats them as a result, with a gradient of zeros.
template <typename Layer>
[[nodiscard]] Tensor through_layers_with_weights(const Net& net, const nn::List<Layer>& layers,
                                                 const std::shared_ptr<const LayerInputs>& with,
                                                 Tensor states) {
  nn::Tensors outputs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i]) continue;
    const auto run = [layer = layers[i], with](const nn::Tensors& x) {
      return (*layer)(x[0], *with);
    };
    outputs = net.run_layer(i, run, nn::Tensors{states});
    states = outputs[0];
  }
  return states;
}

}  // namespace headroom::models::detail
