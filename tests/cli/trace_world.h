// The world that the tests of `headroom trace` share, with a trace in it.
#pragma once

#include <gtest/gtest.h>

#include "tests/cli/headroom_process.h"

namespace headroom::testing {

// Four blocks of 9 MiB, two in each segment of 20; the middle ones go and 18 MiB are wanted.
inline constexpr const char* kTwoInTheMiddle =
    "# blocks of 9 MiB\n"
    "a 1 9437184\na 2 9437184\na 3 9437184\na 4 9437184\nf 2\nf 3\na 5 18874368\n";

class Trace : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& text, const char* name = "x.txt") const {
    return world_.folder().write(name, text);
  }
  [[nodiscard]] Outcome replay(const std::string& text, Arguments more = {}) const {
    more.insert(more.begin(), {"trace", "replay", file(text)});
    return world_.headroom(more);
  }
  const World world_;
};

}  // namespace headroom::testing
