// The tensors that an example is made of.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace headroom::data::detail {

// On the CPU, whatever scope the calling thread is in that moves new tensors to a device: made
// without LibTorch's dispatcher.
[[nodiscard]] inline at::Tensor empty(const std::vector<std::int64_t>& sizes, at::ScalarType type,
                                      bool pinned = false) {
  return at::Tensor(at::detail::empty_cpu(sizes, type, pinned));
}

[[nodiscard]] inline at::Tensor whole_number(std::int64_t value) {
  at::Tensor tensor = empty({}, at::kLong);
  *tensor.mutable_data_ptr<std::int64_t>() = value;
  return tensor;
}

}  // namespace headroom::data::detail
