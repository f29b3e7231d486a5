#include "headroom/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Json, KeepsTheOrderInWhichKeysWereWritten) {
  EXPECT_EQ(to_line({{"schema", 1}, {"gpus", Json::array()}, {"advice", "b"}}),
            R"({"schema":1,"gpus":[],"advice":"b"})");
}

TEST(ToLine, IsOneLineWhateverTheTextsHold) {
  const std::string line = to_line({{"command", "a\nb\r\x1b[31m"}});
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_EQ(parse_json(line, "line").at("command"), "a\nb\r\x1b[31m");
}

TEST(ToLine, ReplacesBytesThatAreNoUtf8) {
  const std::string line = to_line({{"command", "run \xff\xfe.py"}});
  EXPECT_EQ(parse_json(line, "line").at("command"), "run \xef\xbf\xbd\xef\xbf\xbd.py");
}

// A number beyond the range of a double once left parse_json() as another library's exception.
TEST(ParseJson, RefusesEverythingElseNamingTheSource) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "{} {}", "\"\xff\"", "[1e999]"}) {
    try {
      (void)parse_json(text, "box.json");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected JSON in box.json")) << text;
    }
  }
}

TEST(ParseJson, TellsWhereTheFirstWrongByteIs) {
  try {
    (void)parse_json("[1, 2, x]", "f");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("at byte 8"));
  }
}

}  // namespace
}  // namespace headroom
