// A linear layer in a wider type than its input's, such as a float32 adapter on a bfloat16 layer
// (nn/lora.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::nn::detail {

// linear(x.to(weight's type), weight), with the same bits in result and gradients. Autograd keeps x
// as it came, and casts it again in the backward pass: layers that share an input keep it once.
[[nodiscard]] at::Tensor widened_linear(const at::Tensor& x, const at::Tensor& weight);

}  // namespace headroom::nn::detail
