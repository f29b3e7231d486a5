// What exec() and posix_spawn() take: a program's words and its environment.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// The environment of this process with `extra` ("NAME=value") in place of what it overrides.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::string>& extra);

// Into the texts, which have to live as long; ended by a null.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& texts);

}  // namespace headroom
