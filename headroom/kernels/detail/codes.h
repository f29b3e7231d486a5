// The numbers that codes stand for: NF4's 16, and the 256 of the dynamic 8-bit type (Dettmers
// 2016), signed and unsigned, as bitsandbytes has them to the bit; and the search for the nearest
// one.
//
//   const DynamicCodes& codes = kSignedCodes;
//   const std::uint8_t code = codes.nearest(x);   // x in [-1, 1]
//   const float number = codes.value[code];
//
// The search is one table lookup and one comparison, so that it also runs on eight or sixteen
// numbers at once. Device code needs its own copy of the tables: declare one `__constant__`.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels {

// ---- NF4 ----

struct Nf4Codes {
  float value[16], above[15];  // `above`: a number above it has a greater code

  HEADROOM_PORTABLE std::uint32_t nearest(float x) const {
    std::uint32_t code = 0;
    for (const float bound : above) code += x <= bound ? 0U : 1U;  // NaN gets the last one
    return code;
  }
};

constexpr Nf4Codes make_nf4_codes() {
  Nf4Codes codes{
      {-1.0F, -0.6961928009986877F, -0.5250730514526367F, -0.39491748809814453F,
       -0.28444138169288635F, -0.18477343022823334F, -0.09105003625154495F, 0.0F,
       0.07958029955625534F, 0.16093020141124725F, 0.24611230194568634F, 0.33791524171829224F,
       0.44070982933044434F, 0.5626170039176941F, 0.7229568362236023F, 1.0F},
      {}};
  for (int i = 0; i < 15; ++i) codes.above[i] = (codes.value[i] + codes.value[i + 1]) / 2;
  return codes;
}

inline constexpr Nf4Codes kNf4 = make_nf4_codes();

// ---- The dynamic 8-bit type ----

// A table's codes as eight pieces, in each of which they lie evenly: for processors on which
// computing a code is faster than looking it up. A magnitude of at most `end[i]` belongs to piece i
// or one before. In units of 2^-kBits its code is `slope[i]` * magnitude + `start[i]`, at most
// `last[i]`, rounded down, and lies above `zero` or, if the number is negative, below. Where the
// part that is cut off is less than 2 * kDoubt, rounding errors may have given another code.
struct Pieces {
  static constexpr int kBits = 12, kDoubt = 2;
  float end[8], slope[8], start[8], last[8];
  int zero;
  float one;  // a number above it has the next code: that of 1, which belongs to no piece
};

struct DynamicCodes {
  // The upper 16 bits of a float choose the code at the lower end of all floats that have them: at
  // most one bound lies among these. Floats nearer to 0 than 2^-25 count as one.
  static constexpr int kFirst = (127 - 25) << 7, kKeys = (25 << 7) + 1;

  float value[256];
  float above[256];  // a number above it has a greater code; the last: no number is
  // Of positive floats, then of negative ones. Padded, so that 4 bytes can be read at each.
  std::uint8_t lowest[2][kKeys + 3];
  Pieces pieces;

  HEADROOM_PORTABLE static int key_of(std::uint32_t bits) {
    const int key = static_cast<int>((bits >> 16) & 0x7fffU) - kFirst;
    return key < 0 ? 0 : key < kKeys ? key : kKeys - 1;
  }
  HEADROOM_PORTABLE std::uint8_t nearest(float x) const {
    const std::uint32_t bits = bits_of(x);
    const int code = lowest[bits >> 31][key_of(bits)];
    return static_cast<std::uint8_t>(code + (x > above[code] ? 1 : 0));
  }
};

namespace detail {

constexpr int slow_nearest(const DynamicCodes& codes, float x) {
  int first = 0, last = 255;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (x > codes.above[middle])
      first = middle + 1;
    else
      last = middle;
  }
  return first;
}

// The k-th of `count` numbers from 0.1 to 1, as torch.linspace computes them: with one rounding.
constexpr float evenly(int k, int count) {
  const double step = static_cast<double>((1.0F - 0.1F) / static_cast<float>(count - 1));
  return static_cast<float>(k < count / 2 ? static_cast<double>(0.1F) + step * k
                                          : 1.0 - step * (count - k - 1));
}

constexpr void fill_values(DynamicCodes& codes, bool is_signed) {
  constexpr float kDecades[] = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  int negative = 127, positive = is_signed ? 127 : 0;  // the place of 0
  codes.value[positive++] = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const int items = (is_signed ? 1 : 2) << decade;
    for (int k = 0; k < items; ++k) {
      const float mean = (evenly(k, items + 1) + evenly(k + 1, items + 1)) / 2;
      codes.value[positive] = kDecades[decade] * mean;
      if (is_signed) codes.value[--negative] = -codes.value[positive];
      ++positive;
    }
  }
  codes.value[255] = 1;
}

constexpr void fill_bounds(DynamicCodes& codes) {
  for (int i = 0; i < 255; ++i) {
    const double middle =
        (static_cast<double>(codes.value[i]) + static_cast<double>(codes.value[i + 1])) / 2;
    const float bound = static_cast<float>(middle);
    // The greatest float that is not above the middle.
    const bool is_above = static_cast<double>(bound) > middle;
    const std::uint32_t bits = bits_of(bound);
    codes.above[i] = is_above ? float_of(bound > 0 ? bits - 1 : bits + 1) : bound;
  }
  codes.above[255] = 3e38F;
}

constexpr void fill_lowest(DynamicCodes& codes) {
  for (int key = 0; key < DynamicCodes::kKeys; ++key) {
    const std::uint32_t bits = static_cast<std::uint32_t>(DynamicCodes::kFirst + key) << 16;
    const float least = key == 0 ? 0.0F : float_of(bits), most = float_of(bits | 0xffffU);
    codes.lowest[0][key] = static_cast<std::uint8_t>(slow_nearest(codes, least));
    codes.lowest[1][key] = static_cast<std::uint8_t>(slow_nearest(codes, -most));
  }
}

// Piece `i` has `count` codes from `first` on.
constexpr void fill_piece(DynamicCodes& codes, int i, int first, int count) {
  Pieces& pieces = codes.pieces;
  constexpr float kUnit = 1 << Pieces::kBits;
  const int last = first + count - 1;
  const float least = codes.value[first], most = codes.value[last];
  const float slope = count > 1 ? static_cast<float>(count - 1) / (most - least) : 1 / least;
  pieces.slope[i] = slope * kUnit;
  pieces.start[i] =
      (static_cast<float>(first - pieces.zero) - slope * least + 0.5F) * kUnit + Pieces::kDoubt;
  pieces.last[i] = (static_cast<float>(last - pieces.zero) + 0.5F) * kUnit;
  pieces.end[i] = codes.above[last];
}

// The last pieces are `decades` powers of ten up to 1: the smallest has `items` codes, each further
// one twice as many.
constexpr void fill_pieces(DynamicCodes& codes, int zero, int decades, int items) {
  codes.pieces.zero = zero;
  int first = zero + 1, i = 0;
  for (; i < 8 - decades; ++i) {
    codes.pieces.end[i] = codes.above[zero];
    codes.pieces.last[i] = codes.pieces.start[i] = (1 << Pieces::kBits) / 2;
  }
  for (; i < 8; ++i, first += items, items *= 2) fill_piece(codes, i, first, items);
  codes.pieces.one = codes.above[first - 1];
  codes.pieces.end[7] = codes.above[255];
}

}  // namespace detail

constexpr DynamicCodes make_dynamic_codes(bool is_signed) {
  DynamicCodes codes{};
  detail::fill_values(codes, is_signed);
  detail::fill_bounds(codes);
  detail::fill_lowest(codes);
  detail::fill_pieces(codes, is_signed ? 127 : 0, 7, is_signed ? 1 : 2);
  return codes;
}

inline constexpr DynamicCodes kSignedCodes = make_dynamic_codes(true);
inline constexpr DynamicCodes kUnsignedCodes = make_dynamic_codes(false);

}  // namespace headroom::kernels
