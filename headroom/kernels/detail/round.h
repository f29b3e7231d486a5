// Stochastic rounding of floats to 16 bits, in integer arithmetic that is the same on CPU and CUDA.
//
// It takes 16 random bits, and goes away from zero with the probability of the part that is cut
// off. Numbers that 16 bits hold stay what they are, infinities and NaN among them.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels::detail {

HEADROOM_PORTABLE Bf16 to_bf16_by(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0U : (bits + random) >> 16)};
}

// A half has 5 bits of exponent and 10 of fraction; below 2^-14 it is a multiple of 2^-24.
HEADROOM_PORTABLE Half to_half_by(float x, std::uint32_t random) {
  const std::uint32_t bits = bits_of(x), rest = bits & 0x7fffffffU;
  const bool is_small = rest < 0x38800000U;
  // In units of 2^-40: below 2^26.
  const auto fine = static_cast<std::int32_t>(float_of(is_small ? rest : 0U) * 0x1p40F);
  const std::uint32_t small = (static_cast<std::uint32_t>(fine) + random) >> 16;
  const std::uint32_t rounded = rest + (random & 0x1fffU);
  const std::uint32_t huge = rest > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const std::uint32_t half = rounded >= 0x47800000U ? huge
                             : is_small             ? small
                                                    : (rounded - (112U << 23)) >> 13;
  return {static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000U))};
}

}  // namespace headroom::kernels::detail
