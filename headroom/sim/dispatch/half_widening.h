// Operators that CUDA's kernels take half precision for and the CPU's do not: the data is made in
// float, and rounded once, as CUDA's kernels round their sums.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <utility>
#include <vector>

namespace headroom::sim::detail {

class HalfWidening {
 public:
  // Arguments of half precision, from `first` on the stack, become float.
  void widen(torch::jit::Stack& stack, std::size_t first);
  // Results get back the type that the arguments had; those that were written are.
  void narrow(torch::jit::Stack& stack, std::size_t first) const;

 private:
  struct Pair {
    at::Tensor wide;
    at::Tensor original;
  };
  at::Tensor widened(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor narrowed(const at::Tensor& result) const;

  std::optional<at::ScalarType> type_;  // none: nothing was of half precision
  std::vector<Pair> pairs_;
};

}  // namespace headroom::sim::detail
