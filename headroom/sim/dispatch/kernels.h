// The operators that a backend must have itself: making, copying, viewing, reading a value.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

void register_kernels(torch::Library& aten);

}  // namespace headroom::sim::detail
