// Statistics as a row of named figures, so that every single one is compared and can be named.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "headroom/allocator/statistics.h"

namespace headroom::oracle {

inline constexpr std::size_t kFigures = sizeof(allocator::Statistics) / sizeof(std::int64_t);
using Figures = std::array<std::int64_t, kFigures>;

inline Figures figures(const allocator::Statistics& statistics) {
  return std::bit_cast<Figures>(statistics);
}

// "inactive_split_bytes.large.peak"
[[nodiscard]] std::string figure_name(std::size_t index);

}  // namespace headroom::oracle
