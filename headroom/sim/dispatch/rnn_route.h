// Recurrent networks on `sim`: on CUDA they go to cuDNN as a whole, on the CPU to oneDNN or step by
// step. LibTorch's own functions ask for the device by name, and know neither for this one.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// In `aten` for PrivateUse1, and for AutogradPrivateUse1 besides.
void register_rnn_route(torch::Library& aten);

}  // namespace headroom::sim::detail
