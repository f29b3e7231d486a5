// The aten operators for which LibTorch has a kernel of CUDA's own (data/cuda_operators.txt).
#pragma once

#include <string>
#include <vector>

namespace headroom::sim::detail {

// Those of the LibTorch that Headroom was built with: names such as "where.self", sorted.
[[nodiscard]] const std::vector<std::string>& cuda_operators();

// Those of each LibTorch that Headroom builds with.
[[nodiscard]] std::vector<std::string> cuda_operators_of_all_versions();

}  // namespace headroom::sim::detail
