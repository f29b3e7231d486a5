// Composite operators that CUDA composes of other operators than the CPU.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// `aten`: the library of PrivateUse1.
void register_composite_routes(torch::Library& aten);

}  // namespace headroom::sim::detail
