// Every variant of the CPU's kernels gives the bits of the plain one.
#include <gtest/gtest.h>

#include "headroom/base/error.h"
#include "headroom/kernels/detail/isa.h"
#include "tests/kernels/matrices.h"

namespace headroom::kernels {
namespace {

class Variant : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!has(GetParam())) GTEST_SKIP() << "this processor lacks the instructions";
  }
};

// Sizes before and after whole vectors and blocks; extreme numbers.
at::Tensor hard_matrix(std::int64_t rows, std::int64_t columns, at::ScalarType type) {
  at::Tensor numbers = some_matrix(rows, columns, type);
  at::Tensor flat = numbers.view({-1});
  if (flat.numel() > 1000) {
    flat[700] = INFINITY;
    flat[900] = NAN;
    flat.narrow(0, 320, 64).mul_(1e-36);  // its reciprocal overflows, or nearly
    flat.narrow(0, 384, 64).fill_(65504);
  }
  return numbers;
}

TEST_P(Variant, PacksAndUnpacksToTheBitsOfThePlainOne) {
  for (const auto& [rows, columns] : {std::pair{1, 5}, {3, 64}, {5, 257}, {40, 128}, {33, 1000}})
    for (const at::ScalarType type : kTypes)
      for (const auto& [format, nested] :
           {std::pair{Format::int8, false}, {Format::nf4, false}, {Format::nf4, true}}) {
        const at::Tensor weight = hard_matrix(rows, columns, type);
        const auto results = [&, format = format, nested = nested](Isa isa) {
          const IsaScope scope(isa);
          const Packed packed = packed_from(weight, format, nested);
          return std::pair(packed, unpacked(packed, type));
        };
        const auto plain = results(Isa::plain), its = results(GetParam());
        EXPECT_TRUE(same_bits(its.first, plain.first)) << name_of(format, nested) << " " << type;
        EXPECT_TRUE(same_bits(its.second, plain.second)) << name_of(format, nested) << " " << type;
      }
}

INSTANTIATE_TEST_SUITE_P(OfTheCpu, Variant, testing::Values(Isa::avx2, Isa::avx512),
                         [](const auto& isa) {
                           return isa.param == Isa::avx2 ? "Avx2" : "Avx512";
                         });

TEST(IsaScope, ChoosesAndRestores) {
  const Isa before = isa_now();
  {
    const IsaScope scope(Isa::plain);
    EXPECT_EQ(isa_now(), Isa::plain);
  }
  EXPECT_EQ(isa_now(), before);
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (has(isa)) continue;
    EXPECT_THROW(IsaScope{isa}, UsageError);
  }
}

}  // namespace
}  // namespace headroom::kernels
