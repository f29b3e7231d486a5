// Connects SavedTensorScope to LibTorch's autograd engine.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace headroom::libtorch::detail {

// The hooks of this thread's innermost scope; null if there is none.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> saved_variable_hooks();

}  // namespace headroom::libtorch::detail
