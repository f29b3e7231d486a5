// A tensor on a simulated card, as another backend's kernels see it: the same sizes and strides, as
// a Meta tensor (no data) or as a CPU tensor (the card's host memory). An alias lives for one
// operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <utility>
#include <vector>

namespace headroom::sim::detail {

// The aliases of one operator's arguments; also maps its results back to them.
class Aliases {
 public:
  // A CPU alias of a tensor without data fails, or reads as zeros. all_zero: also an alias of a
  // tensor with data, which keeps its data.
  enum class Missing { fails, is_zero, all_zero };

  // `as`: kMeta or kCPU.
  explicit Aliases(c10::DeviceType as, Missing missing = Missing::fails)
      : as_(as), missing_(missing) {}

  // An alias of a tensor on a card, and in shape-only runs of a CPU tensor with dimensions; other
  // tensors unchanged. Two tensors that share storage give aliases that share storage.
  at::Tensor of(const at::Tensor& tensor);

  // The argument whose alias this result is (operators that write in place, or into out=); null if
  // there is none.
  [[nodiscard]] const at::Tensor* argument_behind(const at::Tensor& result) const;
  // The argument's storage if this result is a view of one; null if it has its own storage.
  [[nodiscard]] const c10::Storage* storage_behind(const at::Tensor& result) const;

 private:
  struct Pair {
    at::Tensor alias;
    at::Tensor original;  // keeps it alive, so that its address is not reused
  };
  c10::DeviceType as_;
  Missing missing_;
  std::vector<Pair> pairs_;
};

// A tensor of the same sizes, strides and conjugation over another storage, for the backend of
// `key`.
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
