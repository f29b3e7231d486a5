// The share of a mask that a shape-only card takes for true where it may assume values
// (Card::assume_true).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "headroom/sim/card.h"

namespace headroom::sim::detail {

// The true ones of `count`, rounded up. The card may assume values.
[[nodiscard]] inline std::int64_t share_of(const Card& card, std::int64_t count) {
  const double exact = *card.assume_true() * static_cast<double>(count);
  return std::clamp(static_cast<std::int64_t>(std::ceil(exact)), std::int64_t{0}, count);
}

// The elements of an expanded tensor without their repetitions.
[[nodiscard]] inline at::Tensor own_elements(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  return tensor;
}

// A repeated element is true each time.
[[nodiscard]] inline std::int64_t assumed_true(const Card& card, const at::Tensor& mask) {
  const std::int64_t own = own_elements(mask).numel();
  return own == 0 ? 0 : mask.numel() / own * share_of(card, own);
}

}  // namespace headroom::sim::detail
