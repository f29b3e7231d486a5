// Packed matrices beside bitsandbytes 0.50.2 on the CPU, by hashes of its bytes. It was given the
// same matrices: functional.quantize_4bit(w, quant_type="nf4", compress_statistics=...),
// dequantize_4bit to the matrix's type, and int8_vectorwise_quant.
#include <gtest/gtest.h>

#include <string_view>

#include "headroom/base/sha256.h"
#include "tests/kernels/matrices.h"

namespace headroom::kernels {
namespace {

struct Published {
  std::int64_t rows, columns;
  at::ScalarType type;
  const char *codes, *scales, *nested, *dequantised, *int8;  // the hashes' first digits
};

constexpr Published kPublished[] = {
    {1, 1, at::kFloat, "ca358758f6d27e6c", "31b67dba7cfd6e2d", "c143e408c5d80497",
     "aa4322baa13e07ce", "a57e6d27bda595ce"},
    {1, 1, at::kBFloat16, "ca358758f6d27e6c", "31b67dba7cfd6e2d", "c143e408c5d80497",
     "453980da5d4136d1", "a57e6d27bda595ce"},
    {1, 1, at::kHalf, "ca358758f6d27e6c", "31b67dba7cfd6e2d", "c143e408c5d80497",
     "425b04f73bcc6bdb", "a57e6d27bda595ce"},
    {3, 129, at::kFloat, "3e3cd006a6499a9b", "8844837d28005ee2", "1a3fc5ccf76ab300",
     "182cf94051bb416f", "6e43718bc4e5d86f"},
    {3, 129, at::kBFloat16, "8c8320de29c84b7a", "30793db71ef62371", "68cbf3cb20865104",
     "ef9ba045b5b58890", "d6d8d4989a239ab3"},
    {3, 129, at::kHalf, "3e3cd006a6499a9b", "1e4a64275bcf85a4", "e119219180b05992",
     "9fe5d39e5e0341ca", "110253096b90538f"},
    {7, 37, at::kFloat, "364253910f44afd3", "2e44b0bbf2df0546", "1fa170d17b225b7c",
     "4cdc656400d8ffe4", "6966547404a6d460"},
    {7, 37, at::kBFloat16, "364253910f44afd3", "88e58316ebee33a0", "30a4d16d9e6173a0",
     "71ac5038ae9bd938", "3191f63ec13f86ce"},
    {7, 37, at::kHalf, "364253910f44afd3", "1f888796c134145a", "9864f3e177b0e79b",
     "f6b451e5fd6e226e", "39d939644e405b69"},
    {64, 64, at::kFloat, "3fc6e841a10e38e3", "a83923814086dde1", "a5091d7b09e8fd2a",
     "519c6e24d9c96d8e", "9998e6b7f44feb76"},
    {64, 64, at::kBFloat16, "e4cba2823367f0d4", "6d8ebc484d87ca93", "605a4bc0998f8c92",
     "2611bfa7551fdcff", "1288a27618129967"},
    {64, 64, at::kHalf, "c64cf3ca80f04ded", "989adc80f54c1eba", "cdf2ef3bfd91f139",
     "79224d8d940cd938", "ba233569bd223011"},
    {40, 1000, at::kFloat, "dbfc1cf9d0f901d5", "6e4ad7aeacd80490", "527d863af1889617",
     "d828cb84d21ffc31", "65ad769f57592476"},
    {40, 1000, at::kBFloat16, "4f0c63fc68be43d6", "572410d146ab66e3", "a73fce806d0a5e88",
     "39001f2b2fc5fa58", "f81d36779c791232"},
    {40, 1000, at::kHalf, "f164b0ddb610b7ec", "5a53d45dcf56c483", "dde1750bce91277c",
     "134771ba2f77dc58", "ab3430180d214a5e"},
};

// Every number is exact in float: ((i * 2654435761 mod 2^32) / 2^8 - 2^23) * 2^-26 * (1 + i / 7 %
// 5)
at::Tensor given_matrix(const Published& published) {
  const at::Tensor matrix = at::empty({published.rows, published.columns});
  float* const numbers = matrix.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < matrix.numel(); ++i) {
    const auto mixed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(i) * 2654435761U) >> 8;
    numbers[i] = static_cast<float>((static_cast<double>(mixed) - 8388608.0) * 0x1p-26 *
                                    static_cast<double>(1 + i / 7 % 5));
  }
  return matrix.to(published.type);
}

std::string hash_of(const std::vector<at::Tensor>& tensors) {
  Sha256 hash;
  for (const at::Tensor& tensor : tensors)
    hash.add({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  return hash.hex().substr(0, 16);
}

class PublishedBits : public testing::TestWithParam<Published> {};

TEST_P(PublishedBits, OfNf4) {
  const Packed packed = packed_from(given_matrix(GetParam()), Format::nf4, /*nested=*/false);
  EXPECT_EQ(hash_of({packed.codes}), GetParam().codes);
  EXPECT_EQ(hash_of({packed.scales}), GetParam().scales);
}

TEST_P(PublishedBits, OfNf4WithNestedScales) {
  const Packed packed = packed_from(given_matrix(GetParam()), Format::nf4);
  EXPECT_EQ(hash_of({packed.codes}), GetParam().codes);
  EXPECT_EQ(hash_of({packed.scales, packed.nested_scales, packed.offset}), GetParam().nested);
  EXPECT_EQ(hash_of({unpacked(packed, GetParam().type)}), GetParam().dequantised);
}

TEST_P(PublishedBits, OfInt8) {
  const Packed packed = packed_from(given_matrix(GetParam()), Format::int8);
  EXPECT_EQ(hash_of({packed.codes, packed.scales}), GetParam().int8);
}

INSTANTIATE_TEST_SUITE_P(Matrices, PublishedBits, testing::ValuesIn(kPublished),
                         [](const auto& of) {
                           return std::to_string(of.param.rows) + "x" +
                                  std::to_string(of.param.columns) + c10::toString(of.param.type);
                         });

}  // namespace
}  // namespace headroom::kernels
