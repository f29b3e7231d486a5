// What a shape-only card knows of its tensors' values, for those who write into them without an
// operator.
#pragma once

#include <ATen/core/Tensor.h>

namespace headroom::sim {

// Somebody writes there what nobody knows. In compute mode it has no effect.
void forget_values(const at::Tensor& tensor);

}  // namespace headroom::sim
