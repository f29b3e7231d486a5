// What a shape-only card knows of its tensors' values, for those who write into them without an
// operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::sim {

// Elements of the largest tensor whose values may be known: as many as 128 rows of 1,024 tokens
// have. Masks of positions by positions are soon more, and nobody decides by them.
inline constexpr std::int64_t kMostKnown = 1 << 17;

// Somebody writes there what nobody knows. In compute mode it has no effect.
void forget_values(const at::Tensor& tensor);

}  // namespace headroom::sim
