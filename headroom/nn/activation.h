// Activation functions by the names that config.json files use.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::nn {

using Activation = std::function<at::Tensor(const at::Tensor&)>;

// "gelu", "gelu_new", "silu", ...: operation for operation as transformers' function of that name.
// Empty: there is none.
[[nodiscard]] Activation activation(std::string_view name);
[[nodiscard]] std::vector<std::string> activation_names();

}  // namespace headroom::nn
