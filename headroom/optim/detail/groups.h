// The tensor lists for foreach and fused calls: one device and one type each, in PyTorch's order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace headroom::optim::detail {

using Tensors = std::vector<at::Tensor>;
using Indices = std::vector<std::size_t>;

// Each group holds positions in `tensors`.
[[nodiscard]] std::vector<Indices> by_device_and_type(const Tensors& tensors);

// Selects nothing from an empty list: Adam without amsgrad has no third state.
template <typename Element>
[[nodiscard]] std::vector<Element> select(const std::vector<Element>& all, const Indices& indices) {
  std::vector<Element> chosen;
  if (all.empty()) return chosen;
  chosen.reserve(indices.size());
  for (const std::size_t i : indices) chosen.push_back(all[i]);
  return chosen;
}

// Nothing for an undefined tensor, as the fused kernels take it.
[[nodiscard]] inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace headroom::optim::detail
