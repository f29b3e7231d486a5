// The host memory that a job uses, and the tightest limit on it.
//
// A process with a limit on its address space (ulimit -v) fails at that limit. Without one, all
// processes together are limited by their control group or by the machine's memory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::supervise {

struct HostUse {
  Bytes peak;  // address space of the process nearest to its limit, else resident memory
  std::optional<Bytes> limit;  // std::nullopt if unknown
};

// `root` is "/", except in tests. Processes that have ended count as 0.
[[nodiscard]] HostUse host_use(const std::vector<pid_t>& pids,
                               const std::filesystem::path& root = "/");

}  // namespace headroom::supervise
