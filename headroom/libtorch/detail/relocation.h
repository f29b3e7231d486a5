// Tensors that change their device in place, all or none. LibTorch's way, Tensor::set_data, refuses
// a tensor of another device type than the few it has a list of; what it would change is changed
// here: the storage, the dispatch keys, and the accumulator that autograd remembers for a leaf.
//
//   Relocation relocation(device);
//   relocation.add("weight", weight);  // and its gradient
//   relocation.copy();                 // takes memory there; throws, and nothing has happened
//   relocation.commit();
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace headroom::libtorch::detail {

// `sim` may stand for `sim:0`: the device that a tensor made for it has.
[[nodiscard]] c10::Device concrete(c10::Device device);

// Another storage with the same bytes, on `device`.
[[nodiscard]] c10::Storage copied(const c10::Storage& storage, c10::Device device);

class Relocation {
 public:
  explicit Relocation(c10::Device device) : device_(concrete(device)) {}

  // Throws UsageError for one that cannot be changed in place.
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
