// Moves tensors to another device in place, all or none. LibTorch's own way, Tensor::set_data,
// accepts only a few device types. This class changes the same state: the storage, the dispatch
// keys and a leaf's gradient accumulator.
//
//   Relocation relocation(device);
//   relocation.add("weight", weight);  // and its gradient
//   relocation.copy();                 // allocates and copies; if it throws, no tensor has changed
//   relocation.commit();
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace headroom::libtorch::detail {

// Resolves `sim` to `sim:0`: the device of a tensor made on it.
[[nodiscard]] c10::Device concrete(c10::Device device);

// A new storage with the same bytes on `device`.
[[nodiscard]] c10::Storage copied(const c10::Storage& storage, c10::Device device);

class Relocation {
 public:
  explicit Relocation(c10::Device device) : device_(concrete(device)) {}

  // Throws UsageError for a tensor that cannot be changed in place.
  void add(const std::string& name, const at::Tensor& tensor);
  void copy();
  void commit() noexcept;

 private:
  c10::Device device_;
  std::vector<at::Tensor> tensors_;  // each once, all on other devices
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> copies_;
};

}  // namespace headroom::libtorch::detail
