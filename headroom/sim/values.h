// What a shape-only card knows of its tensors' values, for those who write into them without an
// operator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::sim {

// Elements of the largest tensor whose values may be known: as many as 128 rows of 1,024 tokens
// have. Masks of positions by positions are soon more, and nobody decides by them.
inline constexpr std::int64_t kMostKnown = 1 << 17;
// Bytes of the largest tensor of whole numbers (of 32 or 64 bits) or booleans that is known if it
// came from the host: the edges of a graph, the labels of a batch.
inline constexpr std::size_t kMostKnownFromHost = 16 << 20;

// Whether the values of a tensor on a card are known; in compute mode they are. Those of a tensor
// whose simulation has ended are not.
[[nodiscard]] bool knows_values(const at::Tensor& tensor);

// What is written there now is not known. In compute mode it has no effect.
void forget_values(const at::Tensor& tensor);

}  // namespace headroom::sim
