// Finds a Python that has this Headroom's package.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::rehearse {

// The folder of the package: beside a build, or where a Python has it. Throws UnavailableError if
// there is none.
[[nodiscard]] std::filesystem::path python_package();

struct Python {
  std::string program;
  std::vector<std::string> environment;  // "NAME=value", by which it finds the package
};
// HEADROOM_PYTHON alone if set; else the active environment's, the one beside this program, and the
// first in PATH: the first that has the package and torch. Throws UnavailableError if none has.
[[nodiscard]] Python python_with_package();

}  // namespace headroom::rehearse
