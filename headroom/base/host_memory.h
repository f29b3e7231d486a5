// The host memory that processes here can have: as much as the machine and its control groups
// (version 2) allow.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom {

struct HostMemory {
  std::optional<Bytes> limit;  // of all processes together; std::nullopt if unknown
  // Available now, without ending or swapping out anything; std::nullopt if unknown.
  std::optional<Bytes> available;
};

// `root` is "/", except in tests.
[[nodiscard]] HostMemory host_memory(const std::filesystem::path& root = "/");

// Nine tenths of the available memory: a plan may count on these, so that the kernel never has to
// end a process.
[[nodiscard]] std::optional<Bytes> host_memory_to_use();

// The number after `key` in lines of /proc such as "Key: 123 kB"; there a kB is 1024 bytes.
[[nodiscard]] std::optional<Bytes> kib_field(std::string_view text, std::string_view key);

}  // namespace headroom
