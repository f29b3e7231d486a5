// Packing and unpacking on the CPU: error bounds, odd sizes, pieces, tiles, refusals, bytes.
#include "headroom/kernels/packed.h"

#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "tests/kernels/matrices.h"

namespace headroom::kernels {
namespace {

struct Case {
  Format format;
  bool nested;
};
constexpr Case kCases[] = {{Format::int8, false}, {Format::nf4, false}, {Format::nf4, true}};
constexpr std::int64_t kSizes[][2] = {{1, 1},   {1, 63},   {5, 13},   {7, 37},
                                      {64, 64}, {33, 100}, {70, 1000}};

// Half the widest gap of NF4's codes, and of int8's.
double largest_error(Format format) {
  return format == Format::int8 ? 0.5 / 127 : (1.0 - 0.6961928009986877) / 2;
}

// The largest of the numbers that share a scale with each number.
at::Tensor scales_of(const at::Tensor& weight, Format format) {
  if (format == Format::int8) return weight.abs().amax(1, true).expand_as(weight);
  const std::int64_t missing = (64 - weight.numel() % 64) % 64;
  const at::Tensor blocks = at::constant_pad_nd(weight.flatten(), {0, missing}).view({-1, 64});
  return blocks.abs()
      .amax(1, true)
      .expand_as(blocks)
      .flatten()
      .narrow(0, 0, weight.numel())
      .view_as(weight);
}

TEST(Packed, NumbersComeBackWithinHalfAGap) {
  for (const auto& [rows, columns] : kSizes)
    for (const Format format : {Format::int8, Format::nf4}) {
      const at::Tensor weight = some_matrix(rows, columns);
      const at::Tensor error = (unpacked(packed_from(weight, format, false)) - weight).abs();
      const at::Tensor bound = scales_of(weight, format) * (largest_error(format) * 1.0001);
      EXPECT_TRUE((error <= bound).all().item<bool>()) << rows << " x " << columns;
    }
}

TEST(Packed, NestedScalesMoveNumbersByThePercentOfAScale) {
  const at::Tensor weight = at::randn({128, 512});
  const at::Tensor plain = unpacked(packed_from(weight, Format::nf4, false));
  const at::Tensor nested = unpacked(packed_from(weight, Format::nf4, true));
  EXPECT_GT((plain - nested).abs().max().item<float>(), 0);
  EXPECT_LT(((plain - nested).norm() / plain.norm()).item<float>(), 0.01);
}

TEST(Packed, AllZerosComeBack) {
  for (const auto& [format, nested] : kCases) {
    const at::Tensor zeros = at::zeros({3, 100});
    EXPECT_TRUE(at::equal(unpacked(packed_from(zeros, format, nested)), zeros))
        << name_of(format, nested);
  }
}

TEST(Packed, AnEmptyMatrixIsOne) {
  for (const auto& [format, nested] : kCases) {
    EXPECT_EQ(unpacked(packed_from(at::empty({0, 5}), format, nested)).numel(), 0);
    EXPECT_EQ(unpacked(packed_from(at::empty({5, 0}), format, nested)).numel(), 0);
  }
}

TEST(Packed, NanStaysWhereItsScaleIs) {
  at::Tensor weight = at::ones({2, 64});
  weight[0][5] = NAN;
  const at::Tensor back = unpacked(packed_from(weight, Format::nf4, false));
  EXPECT_TRUE(back[0].isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(back[1], weight[1]));
}

TEST(Packed, AnyStridesAndTypesGiveTheSameCodes) {
  for (const auto& [format, nested] : kCases)
    for (const at::ScalarType type : kTypes) {
      const at::Tensor weight = some_matrix(150, 70).to(at::kHalf).to(type);
      const Packed packed = packed_from(weight, format, nested);
      EXPECT_TRUE(same_bits(packed, packed_from(weight.t().contiguous().t(), format, nested)));
      // These hold the half's value as it is.
      if (type == at::kBFloat16) continue;
      EXPECT_TRUE(same_bits(packed, packed_from(weight.to(at::kFloat), format, nested)));
    }
}

TEST(Packed, ComesInPiecesWithTheSameBits) {
  for (const auto& [rows, columns] : kSizes)
    for (const auto& [format, nested] : kCases) {
      const at::Tensor weight = some_matrix(rows, columns, at::kBFloat16), flat = weight.flatten();
      const std::int64_t step = format == Format::int8 ? 2 * columns : 192;
      const Packed pieces = make_packed(format, rows, columns, at::kCPU, nested);
      Packer packer(pieces);
      for (std::int64_t at = 0; at < flat.numel(); at += step)
        packer.add(flat.narrow(0, at, std::min(step, flat.numel() - at)));
      packer.finish();
      EXPECT_TRUE(same_bits(pieces, packed_from(weight, format, nested)))
          << rows << " x " << columns << " " << name_of(format, nested);
    }
}

TEST(Packed, ATileIsThatPartOfTheWhole) {
  for (const auto& [rows, columns] : kSizes)
    for (const auto& [format, nested] : kCases)
      for (const at::ScalarType type : kTypes) {
        const Packed packed = packed_from(some_matrix(rows, columns), format, nested);
        const at::Tensor whole = unpacked(packed, type);
        const std::int64_t row = rows / 3, column = columns / 2;
        // A view in a larger tensor, whose other numbers must stay.
        const at::Tensor around =
            at::full({rows - row + 2, columns - column + 5}, 7, whole.options());
        const at::Tensor tile = around.narrow(0, 1, rows - row).narrow(1, 2, columns - column);
        unpack(packed, row, column, tile);
        ASSERT_TRUE(
            same_bits(tile, whole.narrow(0, row, rows - row).narrow(1, column, columns - column)));
        EXPECT_EQ((around == 7).sum().item<std::int64_t>() - (tile == 7).sum().item<std::int64_t>(),
                  around.numel() - tile.numel());
      }
}

TEST(Packed, RowsInTheMiddleAreThoseOfTheWhole) {
  const Packed packed = packed_from(some_matrix(300, 1000), Format::nf4);  // several threads' share
  const at::Tensor whole = unpacked(packed), rows = at::empty({251, 1000});
  unpack(packed, 7, 0, rows);
  EXPECT_TRUE(same_bits(rows, whole.narrow(0, 7, 251)));
}

TEST(Packed, MayBeCalledWhereGradientsAreRecorded) {
  const at::Tensor weight = at::randn({4, 64}).requires_grad_();
  const at::Tensor tile = at::empty({4, 64});
  unpack(packed_from(weight, Format::nf4), 0, 0, tile);
  EXPECT_FALSE(tile.requires_grad());
}

TEST(Packed, RefusesWhatDoesNotFit) {
  const Packed packed = packed_from(at::randn({8, 100}), Format::nf4);
  EXPECT_THROW(pack(at::randn({8, 99}), packed), UsageError);
  EXPECT_THROW(unpack(packed, 4, 0, at::empty({5, 100})), UsageError);
  EXPECT_THROW(unpack(packed, 0, 1, at::empty({8, 100})), UsageError);
  EXPECT_THROW(unpack(packed, 0, 0, at::empty({8, 100}, at::kInt)), c10::Error);
  EXPECT_THROW(unpack(packed, 0, 0, at::empty({100, 8}).t()), c10::Error);
  EXPECT_THROW((void)make_packed(Format::int8, -1, 3, at::kCPU), UsageError);
}

TEST(Packer, RefusesPiecesThatSplitABlockAndMissingNumbers) {
  Packer nf4(make_packed(Format::nf4, 4, 100, at::kCPU));
  EXPECT_THROW(nf4.add(at::randn({100})), UsageError);
  nf4.add(at::randn({128}));
  EXPECT_THROW(nf4.finish(), UsageError);
  EXPECT_THROW(nf4.add(at::randn({273})), UsageError);
  Packer int8(make_packed(Format::int8, 4, 100, at::kCPU));
  EXPECT_THROW(int8.add(at::randn({150})), UsageError);
}

std::int64_t bytes_of(const Packed& packed) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : packed.tensors())
    bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

TEST(Packed, TakesTheBytesThatItSays) {
  const auto bytes = [](Format format, bool nested) {
    return bytes_of(make_packed(format, 512, 1024, at::kCPU, nested));
  };
  EXPECT_EQ(bytes(Format::int8, false), 512 * (1024 + 4));
  EXPECT_EQ(bytes(Format::nf4, false), 512 * 1024 / 2 + 512 * 1024 / 64 * 4);
  EXPECT_LE(static_cast<double>(bytes(Format::nf4, true)), 0.517 * 512 * 1024);
}

}  // namespace
}  // namespace headroom::kernels
