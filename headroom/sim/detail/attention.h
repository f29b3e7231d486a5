// scaled_dot_product_attention on `sim`: which kernel CUDA would choose.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

void register_attention(torch::Library& aten);

}  // namespace headroom::sim::detail
