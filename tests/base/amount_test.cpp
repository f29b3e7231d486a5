#include "headroom/base/amount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using namespace headroom::literals;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    (void)parse_amount(text, "--need");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// `--need 10` reserved ten bytes.
TEST(Amount, ANumberWithoutAUnitIsRefusedWithTheOneThatIsMeant) {
  EXPECT_THAT(refusal("10"), HasSubstr("try 10GiB"));
  EXPECT_THAT(refusal("0.5"), HasSubstr("try 0.5GiB"));
  EXPECT_THAT(refusal("20000"), HasSubstr("try 20000MiB"));
  EXPECT_THAT(refusal("1048575"), HasSubstr("expected a size with its unit"));
  EXPECT_EQ(parse_amount("1048576", "--need"), 1_MiB);
  EXPECT_EQ(parse_amount("10GiB", "--need"), 10_GiB);
  EXPECT_EQ(parse_amount(" 24 GB ", "--need"), 24_GB);
}

TEST(Amount, RefusesZeroAndTextThatIsNoSize) {
  for (const char* none : {"0", "0GiB", "0.0"})
    EXPECT_THAT(refusal(none), HasSubstr("more than 0")) << none;
  for (const char* bad : {"", "ten", "-1GiB"})
    EXPECT_THAT(refusal(bad), HasSubstr("expected a size such as")) << bad;
}

TEST(ShareOrAmount, PercentAndNumbersBelowOneAreShares) {
  EXPECT_DOUBLE_EQ(parse_share_or_amount("10%", "--margin").share.value(), 0.1);
  EXPECT_DOUBLE_EQ(parse_share_or_amount("0 %", "--margin").share.value(), 0);
  EXPECT_DOUBLE_EQ(parse_share_or_amount("0.25", "--margin").share.value(), 0.25);
  const ShareOrBytes size = parse_share_or_amount("2GiB", "--margin");
  EXPECT_FALSE(size.share);
  EXPECT_EQ(size.bytes, 2_GiB);
}

// `fit --margin 1.5` left one and a half bytes free.
TEST(ShareOrAmount, RefusesWhatIsNeither) {
  for (const char* bad : {"1.5", "1", "100%", "-5%", "-0.1", "many%", "%"})
    EXPECT_THROW((void)parse_share_or_amount(bad, "--margin"), UsageError) << bad;
}

}  // namespace
}  // namespace headroom
