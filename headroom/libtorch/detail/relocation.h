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

// A new storage of this many bytes on `device`, uninitialised.
[[nodiscard]] c10::Storage blank(std::size_t bytes, c10::Device device);

// A new storage with the same bytes on `device`.
[[nodiscard]] c10::Storage copied(const c10::Storage& storage, c10::Device device);

// With dropped values the new memory is uninitialised, and the old one is not read: also a tensor
// that is on the device already gets new memory.
enum class Values { kept, dropped };

class Relocation {
 public:
  explicit Relocation(c10::Device device, Values values = Values::kept)
      : device_(concrete(device)), values_(values) {}

  // Throws UsageError for a tensor that cannot be changed in place.
  void add(const std::string& name, const at::Tensor& tensor);
  void copy();
  void commit() noexcept;

 private:
  c10::Device device_;
  Values values_;
  std::vector<at::Tensor> tensors_;  // each once; on other devices if their values are kept
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> copies_;
};

}  // namespace headroom::libtorch::detail
