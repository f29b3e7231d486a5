// Activation functions by their names in config.json files.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>

namespace headroom::nn {

using Activation = std::function<at::Tensor(const at::Tensor&)>;

// "gelu", "gelu_new", "silu", ...: operation for operation transformers' function of that name.
// Empty if there is none.
[[nodiscard]] Activation activation(std::string_view name);

}  // namespace headroom::nn
