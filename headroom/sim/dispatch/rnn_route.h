// Recurrent networks on `sim`: CUDA runs them in cuDNN as a whole, the CPU in oneDNN or step by
// step. LibTorch's own functions test for these devices by name and take neither way for `sim`.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// Registers in `aten` (PrivateUse1) and for AutogradPrivateUse1.
void register_rnn_route(torch::Library& aten);

}  // namespace headroom::sim::detail
