// Operators that have a half-precision kernel on CUDA but not on the CPU: the data is computed in
// float and rounded once, as CUDA's kernels round their sums.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <utility>
#include <vector>

namespace headroom::sim::detail {

class HalfWidening {
 public:
  // Converts the half-precision arguments, from `first` on the stack, to float.
  void widen(torch::jit::Stack& stack, std::size_t first);
  // Converts the results to the arguments' type; written arguments are copied back.
  void narrow(torch::jit::Stack& stack, std::size_t first) const;

 private:
  struct Pair {
    at::Tensor wide;
    at::Tensor original;
  };
  at::Tensor widened(const at::Tensor& tensor);
  [[nodiscard]] at::Tensor narrowed(const at::Tensor& result) const;

  std::optional<at::ScalarType> type_;  // empty: there was no half-precision argument
  std::vector<Pair> pairs_;
};

}  // namespace headroom::sim::detail
