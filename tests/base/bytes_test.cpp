#include "headroom/base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(BytesLiterals, AreWhatTheirUnitSays) {
  EXPECT_EQ((17_B).count, 17);
  EXPECT_EQ((1_KiB).count, 1024);
  EXPECT_EQ((5_MiB).count, 5 * 1048576);
  EXPECT_EQ((80_GiB).count, 85899345920);
  EXPECT_EQ((1.5_GiB).count, 1610612736);
  EXPECT_EQ((3_MB).count, 3'000'000);
  EXPECT_EQ((24_GB).count, 24'000'000'000);
}

TEST(Bytes, AddAndCompareAsNumbersDo) {
  EXPECT_EQ(3_GiB - 5_GiB, Bytes{} - 2_GiB);
  EXPECT_LT(3_GiB - 5_GiB, 0_B);
  EXPECT_EQ(1_KiB * 3, 3 * 1_KiB);
  EXPECT_EQ(1_GiB / 4, 256_MiB);
  EXPECT_DOUBLE_EQ(ratio(1_GiB, 4_GiB), 0.25);
  EXPECT_DOUBLE_EQ((1536_MiB).gib(), 1.5);
}

struct Size {
  const char* text;
  std::int64_t bytes;
};

class ParsesSize : public ::testing::TestWithParam<Size> {};

TEST_P(ParsesSize, ToTheByte) {
  EXPECT_EQ(parse_bytes(GetParam().text).count, GetParam().bytes) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(Forms, ParsesSize,
                         ::testing::Values(Size{"512MiB", 536870912}, Size{"10GiB", 10737418240},
                                           Size{"24GB", 24000000000}, Size{"4096", 4096},
                                           Size{"0", 0}, Size{"1.5 GiB", 1610612736},
                                           Size{"1.5GiB", 1610612736}, Size{"  2 MiB  ", 2097152},
                                           Size{"10gib", 10737418240}, Size{"10GIB", 10737418240},
                                           Size{"7KiB", 7168}, Size{"7kB", 7000},
                                           Size{"3TiB", 3298534883328}, Size{"3TB", 3000000000000},
                                           Size{"9B", 9}, Size{"31.36GiB", 33672543601},
                                           Size{"0.5KiB", 512}));

class RefusesSize : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusesSize, AndNamesWhatItExpectedAndWhatCame) {
  try {
    const Bytes size = parse_bytes(GetParam());
    FAIL() << "'" << GetParam() << "' was read as " << size.count;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a size such as 512MiB, 10GiB, 24GB"));
    EXPECT_THAT(error.what(), HasSubstr("received '" + std::string(GetParam()) + "'"));
    EXPECT_THAT(error.what(), HasSubstr("; try "));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RefusesSize,
                         ::testing::Values("10 apples", "-1GiB", "-1", "nan", "NaN", "nanGiB",
                                           "inf", "infGiB", "-inf", "1e3GiB", "1e3", "0x10", "",
                                           " ", "GiB", "1,5GiB", "1.5.5GiB", "5 5GiB", "10GiB more",
                                           "10 Gi B", "--1", "1..", ".", "8388608TiB",
                                           "9223372036854775808", "99999999999999999999999GiB"));

TEST(PrintBytes, ChoosesTheUsualUnit) {
  EXPECT_EQ(to_string(0_B), "0 B");
  EXPECT_EQ(to_string(17_B), "17 B");
  EXPECT_EQ(to_string(1023_B), "1023 B");
  EXPECT_EQ(to_string(1_KiB), "1.0 KiB");
  EXPECT_EQ(to_string(512_MiB), "512.0 MiB");
  EXPECT_EQ(to_string(10_GiB), "10.00 GiB");
  EXPECT_EQ(to_string(2048_GiB), "2.00 TiB");
}

TEST(PrintBytes, NeverShows1024OfAUnit) {
  EXPECT_EQ(to_string(1_MiB - 1_B), "1.0 MiB");
  EXPECT_EQ(to_string(1_GiB - 1_B), "1.00 GiB");
  EXPECT_EQ(to_string(1024_GiB - 1_B), "1.00 TiB");
  for (std::int64_t unit : {1LL << 20, 1LL << 30, 1LL << 40})
    for (std::int64_t below = 1; below < unit / 512; below += unit / 70000 + 1)
      ASSERT_THAT(to_string(Bytes{unit - below}), Not(HasSubstr("1024"))) << unit - below;
}

TEST(PrintBytes, KeepsTheSignOfADifference) {
  EXPECT_EQ(to_string(Bytes{} - 3_GiB), "-3.00 GiB");
  EXPECT_EQ(to_string(Bytes{-17}), "-17 B");
  EXPECT_EQ(to_string(Bytes{std::numeric_limits<std::int64_t>::min()}), "-8388608.00 TiB");
}

TEST(PrintBytes, IsReadBackWithinTheDigitsShown) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    const Bytes size{static_cast<std::int64_t>(random() >> (2 + random() % 60))};
    if (size > 1024_GiB * 1024) continue;
    const Bytes read = parse_bytes(to_string(size));
    // The coarsest step is 0.01 of a unit beyond 1.00 of it, or 0.1 beyond 1.0.
    ASSERT_LE(std::abs(ratio(read - size, std::max(size, 1_B))), 0.0501) << to_string(size);
  }
}

}  // namespace
}  // namespace headroom
