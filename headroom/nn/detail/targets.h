// The layers of a model that can have an adapter, and their selection by patterns (nn/lora.h
// explains patterns).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "headroom/nn/layers.h"

namespace headroom::nn::detail {

struct Target {
  enum class Kind {
    linear,       // the weight is [out, in]
    transposed,   // the weight is [in, out]
    convolution,  // the weight is [out, in, ...]
    embedding,    // the weight is [rows, width]
  };
  std::string path;  // "model.layers.0.mlp.up_proj"
  torch::nn::Module* layer;
  Tensor weight;
  Kind kind;
  After* after;  // null for a layer of torch::nn, whose weight is followed (libtorch/follow.h)

  [[nodiscard]] bool has_adapter() const;
};

// Whether the path leads into one of the usual heads (nn/freeze.h).
[[nodiscard]] bool in_head(std::string_view path);

// Every layer below the model that can have an adapter, in the model's order: Linear and Conv1D of
// headroom::nn, and Linear, Conv1d, Conv2d and Embedding of torch::nn.
[[nodiscard]] std::vector<Target> layers_with_weights(torch::nn::Module& model);

// Those that match, in the model's order. Throws UsageError for a pattern that matches none.
[[nodiscard]] std::vector<Target> chosen(torch::nn::Module& model,
                                         const std::vector<std::string>& patterns);

}  // namespace headroom::nn::detail
