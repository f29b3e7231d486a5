// bfloat16 and half by bit arithmetic, beside LibTorch's own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels {
namespace {

bool same(float one, float other) {
  return bits_of(one) == bits_of(other) || (std::isnan(one) && std::isnan(other));
}

TEST(Numbers, EveryBfloat16AndHalfBecomesTheSameFloat) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto given = static_cast<std::uint16_t>(bits);
    ASSERT_TRUE(same(to_float(Bf16{given}), c10::BFloat16(given, c10::BFloat16::from_bits())))
        << bits;
    ASSERT_TRUE(same(to_float(Half{given}), c10::Half(given, c10::Half::from_bits()))) << bits;
  }
}

void expect_rounded_alike(float x) {
  const std::uint16_t bf16 = to_bf16(x).bits, half = to_half(x).bits;
  if (std::isnan(x)) {
    ASSERT_TRUE(std::isnan(to_float(Bf16{bf16})) && std::isnan(to_float(Half{half})));
    return;
  }
  ASSERT_EQ(bf16, c10::BFloat16(x).x) << x;
  ASSERT_EQ(half, c10::Half(x).x) << x;
}

TEST(Numbers, FloatsRoundAsLibTorchRounds) {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 99991)
    expect_rounded_alike(float_of(static_cast<std::uint32_t>(bits)));
}

// Where two numbers of 16 bits are as near, and beside that; subnormal and overflowing ones among
// them.
TEST(Numbers, TiesGoToTheEven) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto given = static_cast<std::uint16_t>(bits);
    const std::uint32_t half = bits_of(to_float(Half{given}));
    for (const std::uint32_t of : {(static_cast<std::uint32_t>(given) << 16) | 0x8000U,
                                   half + 0x1000U, half + 0x0fffU, half + 0x1001U})
      expect_rounded_alike(float_of(of));
  }
  for (const float x : {65504.0F, 65519.99F, 65520.0F, 65536.0F, 1e30F, INFINITY, -INFINITY})
    expect_rounded_alike(x);
}

}  // namespace
}  // namespace headroom::kernels
