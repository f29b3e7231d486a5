// Texts that are broken into lines.

#include "headroom/base/wrap.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Cells, AreCharactersAndNoColours) {
  EXPECT_EQ(cells("12.5 GiB"), 8U);
  EXPECT_EQ(cells("日本 ü"), 4U);
  EXPECT_EQ(cells("\033[31mfits\033[0m"), 4U);
  EXPECT_EQ(cells("\033[3"), 3U) << "no colour";
}

TEST(Wrapped, BreaksAtBlanksAlsoInColouredText) {
  const std::string first(20, 'a'), second(18, 'b');
  EXPECT_EQ(wrapped(first + " " + second, "", "", 40), first + " " + second + "\n");
  const std::string red = "\033[31m" + second + "\033[0m";
  EXPECT_EQ(wrapped(first + " " + red, "", "", 40), first + " " + red + "\n");
  EXPECT_EQ(wrapped(first + " " + second + "bb", "", "  ", 40), first + "\n  " + second + "bb\n");
}

// The first line was as much too wide as its prefix was longer than the others'.
TEST(Wrapped, CountsThePrefixOfTheFirstLine) {
  const std::string word(14, 'w');
  EXPECT_EQ(wrapped(word + " " + word, "the defaults: ", "  ", 40),
            "the defaults: " + word + "\n  " + word + "\n");
}

}  // namespace
}  // namespace headroom
