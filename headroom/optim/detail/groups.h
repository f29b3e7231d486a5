// The lists that one foreach or fused call takes: of one device and one type each, in the order in
// which PyTorch takes them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace headroom::optim::detail {

using Tensors = std::vector<at::Tensor>;
using Indices = std::vector<std::size_t>;

// Each group as positions in `tensors`.
[[nodiscard]] std::vector<Indices> by_device_and_type(const Tensors& tensors);

// Of an empty list nothing is selected: Adam without amsgrad has no third state.
template <typename Element>
[[nodiscard]] std::vector<Element> select(const std::vector<Element>& all, const Indices& indices) {
  std::vector<Element> chosen;
  if (all.empty()) return chosen;
  chosen.reserve(indices.size());
  for (const std::size_t i : indices) chosen.push_back(all[i]);
  return chosen;
}

// What is one for all devices, on this one; nothing if it is undefined.
[[nodiscard]] std::optional<at::Tensor> on(c10::Device device, const at::Tensor& scalar);

}  // namespace headroom::optim::detail
