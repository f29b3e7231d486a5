// One operator on a simulated card: first its results get their shapes and their memory, the same
// way in both modes; then, in compute mode, the CPU's kernel fills them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace headroom::sim::detail {

// The kernel of every operator on `sim`, in LibTorch's form for any operator.
void execute(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace headroom::sim::detail
