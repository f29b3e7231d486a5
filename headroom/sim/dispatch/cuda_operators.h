// The aten operators for which LibTorch 2.11 has a kernel of CUDA's own (data/cuda_operators.txt).
#pragma once

#include <string>
#include <vector>

namespace headroom::sim::detail {

// Names such as "where.self", sorted.
[[nodiscard]] const std::vector<std::string>& cuda_operators();

}  // namespace headroom::sim::detail
