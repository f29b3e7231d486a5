// The arithmetic of a block: what its scale is, which code a number gets, which number a code is.
// One header for all processors, so that all give the same bits. They are the bits of bitsandbytes
// 0.50.2 on the CPU, and where its arithmetic looks odd below, that is the reason.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/codes.h"
#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels {

inline constexpr int kNf4Block = 64;      // numbers with a scale in common
inline constexpr int kNestedBlock = 256;  // scales with a scale in common

// The size of a number as an integer: their maximum is the absolute maximum, and NaN is the
// greatest.
HEADROOM_PORTABLE std::uint32_t size_of(float value) {
  return bits_of(value) & 0x7fffffffU;
}

// ---- NF4 ----

// The scale of a block. Only an incomplete one, the matrix's last, has a least scale.
HEADROOM_PORTABLE float nf4_scale(std::uint32_t largest, bool is_whole) {
  const float scale = float_of(largest);
  return !is_whole && scale < 1e-38F ? 1e-38F : scale;
}

// What the numbers of a whole block are multiplied with. Those of an incomplete one are divided by
// the scale.
HEADROOM_PORTABLE float nf4_factor(float scale) {
  return 1.0F / (scale < 1e-38F ? 1e-38F : scale);
}

// The code of number `at` of a matrix, by its two halves of a byte.
HEADROOM_PORTABLE std::uint32_t nf4_half(const std::uint8_t* codes, std::int64_t at) {
  return at % 2 == 0 ? codes[at / 2] >> 4 : codes[at / 2] & 15U;
}

// ---- Double quantisation ----

HEADROOM_PORTABLE float nested_factor(float nested_scale) {
  return 1.0F / nested_scale;
}

// bitsandbytes rounds to one of 65,536 steps before it looks for the nearest code; `codes` is
// kSignedCodes. The product is rounded once, which double arithmetic does here.
HEADROOM_PORTABLE std::uint8_t nested_code(float difference, float nested_scale,
                                           const DynamicCodes& codes) {
  if (nested_scale == 0) return 0;
  const float x = difference * nested_factor(nested_scale);
  const float clamped = x > -1.0F ? (x < 1.0F ? x : 1.0F) : -1.0F;
  const double exact = static_cast<double>((clamped + 1.0F) * 0.5F) * 65535.0 + 0.5;
  const int step = static_cast<int>(static_cast<float>(exact));
  return codes.nearest(static_cast<float>(2 * step) / 65535.0F - 1.0F);
}

HEADROOM_PORTABLE float unnested_scale(float value_of_code, float nested_scale, float offset) {
  return value_of_code * nested_scale + offset;
}

// ---- int8 ----

HEADROOM_PORTABLE float int8_factor(float scale) {
  return 1.0F / scale * 127.0F;
}

HEADROOM_PORTABLE std::int8_t int8_code(float number, float factor) {
  const float x = number * factor;
  // The sum's last bits are the nearest integer, ties to even. A row of zeros has only NaN here.
  const std::uint32_t sum = bits_of(x + 12582912.0F);
  return static_cast<std::int8_t>(size_of(x) <= bits_of(127.5F) ? sum & 0xffU : 0U);
}

HEADROOM_PORTABLE float int8_number(std::int8_t code, float scale) {
  return static_cast<float>(code) * scale * 0.007874015718698502F;
}

}  // namespace headroom::kernels
