#include "headroom/plan/plan_report.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "headroom/base/file.h"

namespace headroom::plan {
namespace {

using namespace literals;

TEST(PlanReport, ComesBackFromTheFileThatTheVariableNames) {
  std::filesystem::path path;
  {
    const PlanReportFile file;
    path = file.path();
    const std::string variable = file.variable();
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    EXPECT_FALSE(read_plan_report(path));
    write_plan_report({9_GiB, "micro-batch 8"});
    ::unsetenv(variable.substr(0, equals).c_str());
    const auto report = read_plan_report(path);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->needed, 9_GiB);
    EXPECT_EQ(report->plan, "micro-batch 8");
    write_file_atomically(path, "{\"needed_bytes\": \"many\"}");
    EXPECT_FALSE(read_plan_report(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  write_plan_report({1_GiB, "read by no one"});  // without the variable it does nothing
}

}  // namespace
}  // namespace headroom::plan
