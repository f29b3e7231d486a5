// The checks that all losses over a large vocabulary share.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace headroom::nn::detail {

// Throws UsageError unless states are [..., width] and labels [...], at least one.
void check_labels(std::string_view function, const at::Tensor& states, const at::Tensor& labels);

}  // namespace headroom::nn::detail
