// The parts of the backend, which backend.cpp registers with LibTorch.
#pragma once

#include <torch/library.h>

namespace headroom::sim::detail {

// A new library of kernels under this key, kept for good: tensors may outlive the simulation, and
// need their kernels. `names`: "_" for a fallback.
[[nodiscard]] torch::Library& library(c10::DispatchKey key, const char* names = "aten");

// `aten`: the library of PrivateUse1. Those with differentiable kernels register them for
// AutogradPrivateUse1, too.

// The operators that a backend must have itself: making, copying, viewing, reading a value.
void register_kernels(torch::Library& aten);
// scaled_dot_product_attention: chooses the kernel that CUDA would choose on this chip (or the CPU,
// under its rules), and calls it.
void register_attention_route(torch::Library& aten);
// Recurrent networks: CUDA runs them in cuDNN as a whole, the CPU in oneDNN or step by step.
// LibTorch's own functions test for these devices by name and take neither way for `sim`.
void register_rnn_route(torch::Library& aten);
// Composite operators that CUDA composes of other operators than the CPU.
void register_composite_routes(torch::Library& aten);
// Mixed precision: the type in which autocast runs each operator. CUDA's lists, or the CPU's on a
// card that follows the CPU's rules.
void register_autocast();
// Sparse gradients, as an embedding with sparse = true makes them: tensors of indices and values on
// the card. A training step's operators work: accumulating, adding to a dense tensor as
// torch::optim::SGD does, reading indices and values, making them dense. Every other operator
// refuses sparse tensors, and nested ones that are not jagged.
void register_sparse();

}  // namespace headroom::sim::detail
