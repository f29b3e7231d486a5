#pragma once

#include <cstdint>

namespace headroom::gpu::detail {

// The groups of `by` that n things fill, the last one perhaps in part.
constexpr std::int64_t divided_up(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

}  // namespace headroom::gpu::detail
