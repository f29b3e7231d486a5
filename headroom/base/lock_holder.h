// The process that holds flock() on a file or folder.
#pragma once

#include <filesystem>
#include <string>

namespace headroom {

// "PID 1234", or "another process" where the kernel does not name it.
[[nodiscard]] std::string lock_holder(const std::filesystem::path& path);

}  // namespace headroom
