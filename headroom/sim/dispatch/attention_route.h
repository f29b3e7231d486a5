// scaled_dot_product_attention on `sim`: chooses the kernel that CUDA would choose on this chip (or
// the CPU, under its rules), and calls it.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// Registers in `aten` (PrivateUse1), and the differentiable function for AutogradPrivateUse1.
void register_attention_route(torch::Library& aten);

}  // namespace headroom::sim::detail
