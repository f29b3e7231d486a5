// How kernels are told the type of numbers, and where an NF4 matrix lies.
#pragma once

#include <cstdint>

namespace headroom::kernels {

enum class Number { float32, float64, bf16, half };

struct Nf4Memory {
  const std::uint8_t* codes;
  const float* scales;              // null if nested:
  const std::uint8_t* scale_codes;  // the codes of the scales
  const float* nested_scales;
  const float* offset;
};

}  // namespace headroom::kernels
