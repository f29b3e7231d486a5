// How much host memory a job uses, and how much it may: by the tightest limit that holds for it.
//
// A process with a limit on its address space (ulimit -v) runs into that, whatever the machine has;
// else all processes together run into their control group's limit or the machine's memory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "headroom/base/bytes.h"

namespace headroom::supervise {

struct HostUse {
  Bytes peak;                  // address space of the process nearest its limit, else resident now
  std::optional<Bytes> limit;  // empty where nothing is known
};

// `root` is "/", except in tests. Processes that are gone count nothing.
[[nodiscard]] HostUse host_use(const std::vector<pid_t>& pids,
                               const std::filesystem::path& root = "/");

}  // namespace headroom::supervise
