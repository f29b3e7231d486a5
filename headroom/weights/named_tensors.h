// Tensors and the names that they have in files.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace headroom::weights {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

}  // namespace headroom::weights
