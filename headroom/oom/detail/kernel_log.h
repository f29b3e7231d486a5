// Kills for lack of memory in the kernel's log, from construction on.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/descriptor.h"

namespace headroom::oom::detail {

class KernelLog {
 public:
  // Stays empty if `device` cannot be read, as for most users.
  explicit KernelLog(const std::filesystem::path& device);

  // The first line since construction that names one of `pids` as killed.
  [[nodiscard]] std::string line_naming(const std::vector<pid_t>& pids);

 private:
  void read_new();

  Descriptor descriptor_;
  std::vector<std::string> kills_;
};

}  // namespace headroom::oom::detail
