// The layers of a model that can have an adapter, and those that patterns choose (nn/lora.h says
// what a pattern is).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "headroom/nn/layers.h"

namespace headroom::nn::detail {

struct Target {
  std::string path;  // "model.layers.0.mlp.up_proj"
  torch::nn::Module* layer;
  Tensor weight;
  After* after;
  bool transposed;  // the weight is [in, out]
};

// Every nn::Linear and nn::Conv1D below the model, in its order.
[[nodiscard]] std::vector<Target> linear_layers(torch::nn::Module& model);

// In the model's order. Throws UsageError for a pattern that none of them has.
[[nodiscard]] std::vector<Target> chosen(const std::vector<Target>& layers,
                                         const std::vector<std::string>& patterns);

}  // namespace headroom::nn::detail
