// `headroom profile` as a process: headroom, which becomes headroom-engine.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/with_engine.h"

namespace headroom {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::keys_of;
using testing::Outcome;
using testing::WithEngine;

Outcome profile(Arguments arguments) {
  arguments.insert(arguments.begin(), "profile");
  return WithEngine().headroom(arguments);
}

TEST(ProfileCommand, HasEveryKeyOfTheContract) {
  const Outcome outcome = profile({"gpt2", "--gpus", "RTX 4090", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json document = outcome.json();
  EXPECT_EQ(document.at("schema"), 1);
  EXPECT_EQ(document.at("simulated_time"), true);
  EXPECT_EQ(document.at("rows").size(), 10);
  EXPECT_THAT(keys_of(document.at("rows").at(0)),
              ::testing::IsSupersetOf({"name", "calls", "shapes", "cpu_s", "device_s", "self_bytes",
                                       "total_bytes", "cpu_bytes"}));
  for (std::size_t i = 1; i < 10; ++i)
    EXPECT_GE(document.at("rows").at(i - 1).at("self_bytes").get<std::int64_t>(),
              document.at("rows").at(i).at("self_bytes").get<std::int64_t>());
}

TEST(ProfileCommand, GroupsByShapeAndByModuleToTheSameBytes) {
  const auto sum = [](const char* group) {
    const Json document =
        profile({"gpt2", "--group-by", group, "--row-limit", "0", "--json"}).json();
    std::int64_t bytes = 0;
    for (const Json& row : document.at("rows")) bytes += row.at("self_bytes").get<std::int64_t>();
    return bytes;
  };
  EXPECT_EQ(sum("operator"), sum("shape"));
  EXPECT_EQ(sum("operator"), sum("module"));
}

TEST(ProfileCommand, PrintsATableOf100ColumnsAndWritesAChromeTrace) {
  const std::string file = ::testing::TempDir() + "profile_trace.json";
  const Outcome outcome =
      profile({"gpt2", "--steps", "1", "--sort-by", "cpu_time_total", "--trace", file});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("1 step on"), HasSubstr("by cpu_time_total")));
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  bool has_memory = false;
  const Json trace = Json::parse(text.str());
  for (const Json& event : trace.at("traceEvents"))
    has_memory = has_memory || event.at("name") == "memory sim:0";
  EXPECT_TRUE(has_memory);
}

TEST(ProfileCommand, AnswersForACardThatIsTooSmall) {
  const Outcome outcome = profile({"gpt2", "--gpus", "sim:1x1GiB", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json().at("fits"), false);
}

TEST(ProfileCommand, RefusesAWrongFigureBeforeItRunsAndWrites) {
  const std::string file = ::testing::TempDir() + "profile_refused.json";
  std::filesystem::remove(file);
  EXPECT_EQ(profile({"gpt2", "--sort-by", "bytes", "--trace", file}).exit_code, 64);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(ProfileCommand, RefusesFiguresGroupsAndSettingsThatItDoesNotHave) {
  EXPECT_EQ(profile({"gpt2", "--sort-by", "bytes"}).exit_code, 64);
  EXPECT_EQ(profile({"gpt2", "--group-by", "line"}).exit_code, 64);
  EXPECT_EQ(profile({"gpt2", "--row-limit", "-1"}).exit_code, 64);
  EXPECT_EQ(profile({"gpt2", "--gpus", "sim:1x24GiB,1x8GiB"}).exit_code, 64);
  const Outcome outcome = profile({"gpt2", "--quantize", "4bit"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_THAT(outcome.err, HasSubstr("--quantize"));
}

}  // namespace
}  // namespace headroom
