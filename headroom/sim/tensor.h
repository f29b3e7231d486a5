// A tensor on a simulated card, seen from outside of its operators: its address in the card's
// allocator, and its values as far as a shape-only card knows them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace headroom::sim {

// The address of a storage, or of the memory under a tensor, in the card's allocator and its trace.
// std::nullopt if it lies on no card, or has no bytes.
[[nodiscard]] std::optional<std::uint64_t> address_of(const c10::Storage& storage);
[[nodiscard]] std::optional<std::uint64_t> address_of(const at::TensorBase& tensor);

// True if the values of a tensor on a card are known, as all are in compute mode. False for a
// tensor whose simulation has ended.
[[nodiscard]] bool knows_values(const at::Tensor& tensor);

// False for a tensor on a card whose simulation has ended: it can only be freed.
[[nodiscard]] bool lives(const at::Tensor& tensor);

// For code that writes into a tensor without an operator: the values there are now unknown. In
// compute mode it has no effect.
void forget_values(const at::Tensor& tensor);

}  // namespace headroom::sim
