// The layers of a model that can have an adapter, and those that patterns choose (nn/lora.h says
// what a pattern is).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "headroom/nn/layers.h"

namespace headroom::nn::detail {

struct Target {
  enum class Kind {
    linear,       // the weight is [out, in]
    turned,       // [in, out]
    convolution,  // [out, in, ...]
    embedding,    // [rows, width]
  };
  std::string path;  // "model.layers.0.mlp.up_proj"
  torch::nn::Module* layer;
  Tensor weight;
  Kind kind;
  After* after;  // null: a layer of torch::nn, whose weight is followed (libtorch/follow.h)

  [[nodiscard]] bool has_adapter() const;
};

// Every layer below the model that can have an adapter, in its order: Linear and Conv1D of
// headroom::nn, and Linear, Conv1d, Conv2d and Embedding of torch::nn.
[[nodiscard]] std::vector<Target> layers_with_weights(torch::nn::Module& model);

// In the model's order. Throws UsageError for a pattern that none of them has.
[[nodiscard]] std::vector<Target> chosen(const std::vector<Target>& layers,
                                         const std::vector<std::string>& patterns);

}  // namespace headroom::nn::detail
