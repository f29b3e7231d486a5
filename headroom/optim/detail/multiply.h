// x.mul_(number) as Python's binding runs it: the number becomes a tensor and is not rounded to x's
// type first. C++'s x.mul_(number) multiplies a bfloat16 by 0.8984375 instead of 0.9.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

namespace headroom::optim::detail {

inline const at::Tensor& multiply_(const at::Tensor& x, double by) {
  return x.mul_(at::native::wrapped_scalar_tensor(by));
}

}  // namespace headroom::optim::detail
