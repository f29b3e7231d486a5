// Runs one operator on a simulated card: first its results get shapes and memory, the same way in
// both modes; then, in compute mode, the CPU's kernel fills them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace headroom::sim::detail {

// The boxed kernel of every operator on `sim`.
void execute(const c10::OperatorHandle& handle, torch::jit::Stack* stack);

}  // namespace headroom::sim::detail
