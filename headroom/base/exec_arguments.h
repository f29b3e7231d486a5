// Arguments and environment in the form that exec() and posix_spawn() take.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// The environment of this process; entries of `extra` ("NAME=value") override its own.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::string>& extra);

// A null-terminated list of pointers into `texts`, which must outlive them.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& texts);

}  // namespace headroom
