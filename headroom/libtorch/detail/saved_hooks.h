// From SavedTensorScope to what LibTorch's engine is asked for.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace headroom::libtorch::detail {

// Those of this thread's innermost scope; null: there is none.
[[nodiscard]] std::unique_ptr<torch::autograd::SavedVariableHooks> saved_variable_hooks();

}  // namespace headroom::libtorch::detail
