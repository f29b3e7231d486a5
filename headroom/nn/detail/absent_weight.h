// Weights that are built without memory (nn/quantise.h, WithoutMemoryScope).
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::nn::detail {

// Whether this thread builds linear weights without memory from now on. Returns the old value.
bool build_without_memory(bool wanted);

// The weight of a linear layer, uninitialised.
[[nodiscard]] at::Tensor linear_weight(at::IntArrayRef sizes);

[[nodiscard]] bool is_absent(const at::Tensor& weight);

}  // namespace headroom::nn::detail
