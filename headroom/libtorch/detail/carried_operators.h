// The operators of weights that carry something (detail/carried.h), by groups.
#pragma once

#include <ATen/core/stack.h>
#include <torch/library.h>

#include "headroom/libtorch/detail/carried.h"

namespace headroom::libtorch::detail {

// Registers all operators, once.
void register_carried_operators();

// Linear layers, convolutions and embeddings (carried_products.cpp).
void add_products(torch::Library& aten);
// copy_, clone, moves, and operators that need no values (stored_operators.cpp).
void add_stored_operators(torch::Library& aten);
// Any other operator: stored weights are whole while it runs.
void with_whole_weights(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack);

// A tensor without memory, with the sizes and the type of `like`.
[[nodiscard]] at::Tensor hollow(const at::Tensor& like, std::shared_ptr<Store> store,
                                c10::Device device, at::ScalarType type);
// The whole weight, or of weight.t(), counted under this name.
[[nodiscard]] at::Tensor whole(const at::Tensor& weight, const std::string& op);

// Tells the follower that an operator used its weight which it does not follow.
void note_other_use(const Following& following);

}  // namespace headroom::libtorch::detail
