#include "headroom/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headroom {
namespace {

using ::testing::ElementsAre;

TEST(Trim, TakesBlanksAndLineBreaksFromBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim("  "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_THAT(split("a,b,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split(",", ','), ElementsAre("", ""));
}

// join() once left out the separator after leading empty parts.
TEST(Join, UndoesSplit) {
  for (const char* text : {"a,b,,c", "", ",", ",a", ",,a,", "abc"}) {
    std::vector<std::string> parts;
    for (const auto part : split(text, ',')) parts.emplace_back(part);
    EXPECT_EQ(join(parts, ","), text);
  }
}

TEST(ToInteger, TakesWholeTextsOnly) {
  EXPECT_EQ(to_integer("-42"), -42);
  EXPECT_EQ(to_integer("9223372036854775807"), 9223372036854775807LL);
  for (const char* text : {"12x", "", " 1", "1 ", "9223372036854775808", "1.5", "0x1"})
    EXPECT_EQ(to_integer(text), std::nullopt) << text;
}

// "nan" and "inf" were once numbers here.
TEST(ToNumber, TakesNumbersOnly) {
  EXPECT_EQ(to_number("-1.5"), -1.5);
  EXPECT_EQ(to_number("1e3"), 1000.0);
  for (const char* text : {"", "1.5x", " 1", "1e999", "nan", "inf", "-inf", "infinity"})
    EXPECT_EQ(to_number(text), std::nullopt) << text;
}

TEST(Counted, SpeaksOfOneAsOne) {
  EXPECT_EQ(counted(0, "card"), "0 cards");
  EXPECT_EQ(counted(1, "card"), "1 card");
  EXPECT_EQ(counted(2, "card"), "2 cards");
  EXPECT_EQ(counted(2, "process"), "2 processes");
  EXPECT_EQ(counted(2, "try"), "2 tries");
}

TEST(Nearest, FindsTheWordBehindATypo) {
  const std::vector<std::string> commands{"gpus", "pick", "log", "clean", "doctor", "models"};
  EXPECT_EQ(nearest("gpsu", commands), "gpus");
  EXPECT_EQ(nearest("GPU", commands), "gpus");
  EXPECT_EQ(nearest("docter", commands), "doctor");
  EXPECT_EQ(nearest("modles", commands), "models");
  EXPECT_EQ(nearest("lgo", commands), "log");
}

TEST(Nearest, GuessesNothingFromAnotherWord) {
  EXPECT_EQ(nearest("frobnicate", {"gpus", "pick"}), std::nullopt);
  EXPECT_EQ(nearest("", {"gpus", "pick"}), std::nullopt);
  EXPECT_EQ(nearest("gpus", {}), std::nullopt);
}

TEST(Nearest, PrefersTheExactOneWhateverItsPlace) {
  EXPECT_EQ(nearest("a100", {"a10", "a1000", "A100", "a101"}), "A100");
}

}  // namespace
}  // namespace headroom
