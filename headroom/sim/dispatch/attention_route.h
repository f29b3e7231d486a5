// scaled_dot_product_attention on `sim`: which kernel CUDA would choose on this chip (or the CPU,
// under its rules), and the way there.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// In `aten` for PrivateUse1; the differentiable function for AutogradPrivateUse1 besides.
void register_attention_route(torch::Library& aten);

}  // namespace headroom::sim::detail
