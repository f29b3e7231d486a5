// What lets one header of arithmetic serve g++, clang and nvcc, and floats of 16 bits without
// cuda_bf16.h or LibTorch. All of it is exact bit arithmetic: the same bits on every processor, as
// long as the file is compiled without contraction (-ffp-contract=off, nvcc's -fmad=false).
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HEADROOM_PORTABLE __host__ __device__ __forceinline__ constexpr
#else
// Never a symbol of its own: files with other instruction sets include the same headers.
#define HEADROOM_PORTABLE [[gnu::always_inline]] inline constexpr
#endif

namespace headroom::kernels {

HEADROOM_PORTABLE std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}
HEADROOM_PORTABLE float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// The layouts of at::BFloat16 and at::Half.
struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

HEADROOM_PORTABLE float to_float(float value) {
  return value;
}
HEADROOM_PORTABLE float to_float(double value) {
  return static_cast<float>(value);
}
HEADROOM_PORTABLE float to_float(Bf16 value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}
HEADROOM_PORTABLE float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16, rest = value.bits & 0x7fffU;
  const std::uint32_t subnormal = bits_of(static_cast<float>(static_cast<int>(rest)) * 0x1p-24F);
  const std::uint32_t shift = rest >= 0x7c00U ? 224U << 23 : 112U << 23;
  return float_of(sign | (rest < 0x400U ? subnormal : (rest << 13) + shift));
}

// To the nearest, ties to even, as LibTorch converts.
HEADROOM_PORTABLE Bf16 to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0U : rounded)};
}
HEADROOM_PORTABLE Half to_half(float value) {
  const std::uint32_t bits = bits_of(value), rest = bits & 0x7fffffffU;
  // Adding 0.5 leaves a subnormal's bits, rounded, at the end of the fraction.
  const std::uint32_t subnormal = bits_of(float_of(rest) + 0.5F) - 0x3f000000U;
  const std::uint32_t normal = (rest - (112U << 23) + 0xfffU + ((rest >> 13) & 1U)) >> 13;
  const std::uint32_t huge = rest > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const std::uint32_t half = rest >= 0x47800000U ? huge : rest < 0x38800000U ? subnormal : normal;
  return {static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000U))};
}

template <typename T>
struct From;
template <>
struct From<float> {
  HEADROOM_PORTABLE static float number(float value) { return value; }
};
template <>
struct From<double> {
  HEADROOM_PORTABLE static double number(float value) { return static_cast<double>(value); }
};
template <>
struct From<Bf16> {
  HEADROOM_PORTABLE static Bf16 number(float value) { return to_bf16(value); }
};
template <>
struct From<Half> {
  HEADROOM_PORTABLE static Half number(float value) { return to_half(value); }
};

}  // namespace headroom::kernels
