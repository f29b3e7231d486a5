// The code tables of optimizer states. 8 bit: the dynamic maps of Dettmers et al., "8-bit
// Optimizers via Block-wise Quantization", signed for first moments and unsigned for second ones. 4
// bit: those of Li et al., "Memory Efficient Optimizers with 4-bit States", as torchao has them:
// the signed dynamic map, and 1/16, 2/16, ..., 1 without a zero, so that no second moment becomes
// 0.
#pragma once

#include "headroom/kernels/detail/codes.h"

namespace headroom::kernels::detail {

// 16 codes in the form of 256: the last one repeats, and is never the nearest.
constexpr DynamicCodes four_bits(const float (&values)[16]) {
  DynamicCodes codes{};
  for (int i = 0; i < 256; ++i) codes.value[i] = values[i < 16 ? i : 15];
  fill_bounds(codes);
  fill_lowest(codes);
  return codes;
}

constexpr DynamicCodes signed_four_bits() {
  constexpr float kDecades[] = {1e-2F, 1e-1F, 1.0F};
  float values[16] = {};
  int negative = 7, positive = 8;
  for (int decade = 0; decade < 3; ++decade)
    for (int k = 0, items = 1 << decade; k < items; ++k) {
      values[positive] = kDecades[decade] * ((evenly(k, items + 1) + evenly(k + 1, items + 1)) / 2);
      values[--negative] = -values[positive++];
    }
  values[15] = 1;
  DynamicCodes codes = four_bits(values);
  fill_pieces(codes, 7, 3, 1);
  return codes;
}

constexpr DynamicCodes unsigned_four_bits() {
  float values[16] = {};
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(i + 1) / 16;
  DynamicCodes codes = four_bits(values);
  for (int i = 0; i < 8; ++i) fill_piece(codes, i, 0, 16);
  codes.pieces.one = codes.above[255];
  return codes;
}

inline constexpr DynamicCodes kSigned4 = signed_four_bits(), kUnsigned4 = unsigned_four_bits();

struct StateCodes {
  const DynamicCodes &first, &second;
};

HEADROOM_PORTABLE StateCodes state_codes(int bits) {
  if (bits == 8) return {kSignedCodes, kUnsignedCodes};
  return {kSigned4, kUnsigned4};
}

}  // namespace headroom::kernels::detail
