// The tables of codes beside the published ones, and the search for the nearest code. All floats
// are tried by `make nearest-codes`.
#include "headroom/kernels/detail/codes.h"

#include <gtest/gtest.h>

#include <string_view>

#include "headroom/base/sha256.h"
#include "headroom/kernels/detail/blocks.h"
#include "tests/kernels/nearest.h"

namespace headroom::kernels {
namespace {

std::string start_of_hash(const float* values, std::size_t count) {
  Sha256 hash;
  hash.add(std::string_view(reinterpret_cast<const char*>(values), count * sizeof(float)));
  return hash.hex().substr(0, 16);
}

// The hashes are of bitsandbytes 0.50.2's float32 tables: create_dynamic_map(signed) and
// get_4bit_type("nf4").
TEST(Codes, AreThePublishedOnesToTheBit) {
  EXPECT_EQ(start_of_hash(kSignedCodes.value, 256), "e732639a65f497b4");
  EXPECT_EQ(start_of_hash(kUnsignedCodes.value, 256), "305f002cc11278fb");
  EXPECT_EQ(start_of_hash(kNf4.value, 16), "8501941daa1b8a90");
}

class DynamicCodesOf : public testing::TestWithParam<bool> {
 protected:
  const DynamicCodes& codes = GetParam() ? kSignedCodes : kUnsignedCodes;
  void expect_nearest(float x) const {
    ASSERT_TRUE(is_nearest(codes.value, 256, codes.nearest(x), x)) << x;
  }
};

TEST_P(DynamicCodesOf, EachCodeIsItsOwnNearest) {
  for (int code = 0; code < 256; ++code) EXPECT_EQ(codes.nearest(codes.value[code]), code);
}

TEST_P(DynamicCodesOf, EachFloatGetsItsNearest) {
  for (std::uint32_t bits = 0; bits <= 0x3f800000U; bits += 9973) {
    expect_nearest(float_of(bits));
    if (GetParam()) expect_nearest(-float_of(bits));
  }
}

TEST_P(DynamicCodesOf, FloatsBesideABoundGetTheirNearest) {
  for (int code = 0; code < 255; ++code)
    for (std::uint32_t step = 0; step < 2000; ++step)
      expect_nearest(float_of(bits_of(codes.above[code]) + step - 1000));
}

TEST_P(DynamicCodesOf, WhatIsOutsideGetsTheLastOnes) {
  EXPECT_EQ(codes.nearest(1.5F), 255);
  EXPECT_EQ(codes.nearest(-1.5F), 0);
}

INSTANTIATE_TEST_SUITE_P(Codes, DynamicCodesOf, testing::Bool(),
                         [](const auto& is) { return is.param ? "Signed" : "Unsigned"; });

TEST(Nf4Codes, EachFloatGetsItsNearest) {
  for (std::uint32_t bits = 0; bits <= 0x3f800000U; bits += 9973)
    for (const float x : {float_of(bits), -float_of(bits)})
      ASSERT_TRUE(is_nearest_nf4(kNf4.value, static_cast<int>(kNf4.nearest(x)), x)) << x;
}

TEST(Nf4Codes, ATieGoesDownwards) {
  for (int code = 0; code < 15; ++code) {
    const auto expected = static_cast<std::uint32_t>(code);
    EXPECT_EQ(kNf4.nearest(kNf4.above[code]), expected);
    EXPECT_EQ(kNf4.nearest(std::nextafter(kNf4.above[code], 2.0F)), expected + 1);
  }
}

// bitsandbytes fills a table of 65,536 steps by its bounds, which are floats.
TEST(NestedCodes, AreThoseOfATableOf65536Steps) {
  for (int step = 0; step < 65536; ++step) {
    const float x = static_cast<float>(step) * 2.0F / 65535.0F - 1.0F;
    int code = 0;
    while (code < 255 && x > (kSignedCodes.value[code] + kSignedCodes.value[code + 1]) * 0.5F)
      ++code;
    ASSERT_EQ(nested_code(x, 1.0F, kSignedCodes), code) << step;
  }
}

TEST(NestedCodes, AreZeroWhereAllScalesAreEqual) {
  EXPECT_EQ(nested_code(0.0F, 0.0F, kSignedCodes), 0);
}

}  // namespace
}  // namespace headroom::kernels
