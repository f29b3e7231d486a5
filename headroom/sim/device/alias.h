// A tensor on a simulated card, seen by another backend's kernels: the same sizes and strides, as a
// Meta tensor (no data) or as a CPU tensor (the card's host memory). An alias lives for one
// operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <utility>
#include <vector>

namespace headroom::sim::detail {

// The aliases of one operator's arguments, and the way back from what it returns.
class Aliases {
 public:
  // What a CPU alias of a tensor without data does: fail, or read as zeros. all_zero: one with data
  // does so, too, and keeps what it has.
  enum class Missing { fails, is_zero, all_zero };

  // As kMeta or kCPU tensors.
  explicit Aliases(c10::DeviceType as, Missing missing = Missing::fails)
      : as_(as), missing_(missing) {}

  // An alias for a tensor on a card, and in shape-only runs for a CPU tensor with dimensions;
  // others as they are. Two tensors that share storage give aliases that share storage.
  at::Tensor of(const at::Tensor& tensor);

  // The argument that this result is (operators that write in place, or into out=); null: none.
  [[nodiscard]] const at::Tensor* argument_behind(const at::Tensor& result) const;
  // The storage of an argument that this result is a view of; null: it has a storage of its own.
  [[nodiscard]] const c10::Storage* storage_behind(const at::Tensor& result) const;

 private:
  struct Pair {
    at::Tensor alias;
    at::Tensor original;  // keeps it alive, and its address its own
  };
  c10::DeviceType as_;
  Missing missing_;
  std::vector<Pair> pairs_;
};

// The same sizes, strides and conjugation over another storage, for the backend of this key.
[[nodiscard]] at::Tensor rewrapped(const at::Tensor& tensor, c10::Storage storage,
                                   c10::DispatchKey key);

// The argument after a kernel wrote into its alias. An out= argument may have got another shape,
// and more memory.
struct Written {
  at::Tensor argument;
  bool grew = false;
};
[[nodiscard]] Written written(const at::Tensor& argument, const at::Tensor& result);

[[nodiscard]] inline bool on_card(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

}  // namespace headroom::sim::detail
