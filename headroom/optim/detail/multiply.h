// x.mul_(number) as Python's binding runs it: the number goes in as a tensor of its own and is not
// rounded to x's type first. C++'s x.mul_(number) multiplies a bfloat16 by 0.8984375 for 0.9.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::optim::detail {

const at::Tensor& multiply_(const at::Tensor& x, double by);

}  // namespace headroom::optim::detail
