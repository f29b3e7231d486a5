// The key of LibTorch's own test mode, above autograd and autocast: no other code uses it. It sees
// every operator of the threads that include it (on.h), and every operator that uses a tensor with
// it (sleeper.h).
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

namespace headroom::libtorch::detail {

inline constexpr c10::DispatchKey kGenericMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Registers what runs at the key, once.
void register_generic_mode();

// The part of it that is for sleeping tensors.
void wake_arguments(const torch::jit::Stack& stack, std::size_t arguments);

}  // namespace headroom::libtorch::detail
