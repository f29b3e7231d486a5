#include "headroom/optim/detail/multiply.h"

#include <ATen/ScalarOps.h>

namespace headroom::optim::detail {

const at::Tensor& multiply_(const at::Tensor& x, double by) {
  return x.mul_(at::native::wrapped_scalar_tensor(by));
}

}  // namespace headroom::optim::detail
