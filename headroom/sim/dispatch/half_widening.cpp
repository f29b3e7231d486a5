#include "headroom/sim/dispatch/half_widening.h"

#include <ATen/ATen.h>

#include "headroom/libtorch/tensors_in.h"

namespace headroom::sim::detail {

using at::Tensor;
using libtorch::replace_tensors;

void HalfWidening::widen(torch::jit::Stack& stack, std::size_t first) {
  for (std::size_t i = first; i < stack.size(); ++i)
    replace_tensors(stack[i], [&](const Tensor& tensor) { return widened(tensor); });
}

void HalfWidening::narrow(torch::jit::Stack& stack, std::size_t first) const {
  if (!type_) return;
  for (std::size_t i = first; i < stack.size(); ++i)
    replace_tensors(stack[i], [&](const Tensor& tensor) { return narrowed(tensor); });
}

Tensor HalfWidening::widened(const Tensor& tensor) {
  if (!tensor.defined() || !at::isReducedFloatingType(tensor.scalar_type())) return tensor;
  type_ = tensor.scalar_type();
  pairs_.push_back({tensor.to(at::kFloat), tensor});
  return pairs_.back().wide;
}

Tensor HalfWidening::narrowed(const Tensor& result) const {
  for (const Pair& pair : pairs_)
    if (pair.wide.is_same(result)) return pair.original.copy_(result);
  return result.defined() && result.scalar_type() == at::kFloat ? result.to(*type_) : result;
}

}  // namespace headroom::sim::detail
