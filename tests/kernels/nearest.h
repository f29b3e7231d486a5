// Whether a code is the nearest of its table, by exact distances; of two as near the lower one.
#pragma once

#include <cmath>

namespace headroom::kernels {

// Distances of floats that are codes and bounds are exact in double.
inline bool is_nearest(const float* values, int count, int code, float x) {
  const auto distance = [&](int other) {
    return std::fabs(static_cast<double>(x) - static_cast<double>(values[other]));
  };
  const double its = distance(code);
  return (code == 0 || distance(code - 1) > its) &&
         (code == count - 1 || distance(code + 1) >= its);
}

// NF4's bounds are floats, as bitsandbytes has them: for a float at a bound the other code may be
// nearer by what rounding the bound moved it.
inline bool is_nearest_nf4(const float* values, int code, float x) {
  const float up = std::nextafter(x, 2.0F), down = std::nextafter(x, -2.0F);
  return is_nearest(values, 16, code, x) || is_nearest(values, 16, code, up) ||
         is_nearest(values, 16, code, down);
}

}  // namespace headroom::kernels
