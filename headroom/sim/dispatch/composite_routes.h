// Composite operators that go another way on CUDA than on the CPU.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// `aten`: the kernels of cards.
void register_composite_routes(torch::Library& aten);

}  // namespace headroom::sim::detail
