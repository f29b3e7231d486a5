#include "page.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace headroom::coverage {
namespace {

// With HEADROOM_WRITE_PAGES in the environment, the page is written first.
TEST(SimulatedModulesPage, SaysWhatTheCasesSay) {
  const std::string path = HEADROOM_SOURCE_DIR "/docs/reference/simulated-modules.md";
  if (std::getenv("HEADROOM_WRITE_PAGES") != nullptr) std::ofstream(path) << page();
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), page())
      << "run HEADROOM_WRITE_PAGES=1 coverage_tests --gtest_filter='SimulatedModulesPage.*'";
}

}  // namespace
}  // namespace headroom::coverage
