// Kills for lack of memory in the kernel's log, from construction on.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::oom::detail {

class KernelLog {
 public:
  // Stays empty if `device` cannot be read, as for most users.
  explicit KernelLog(const std::filesystem::path& device);
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  // The first line since construction that names one of `pids` as killed.
  [[nodiscard]] std::string line_naming(const std::vector<pid_t>& pids);

 private:
  void read_new();

  int descriptor_ = -1;
  std::vector<std::string> kills_;
};

}  // namespace headroom::oom::detail
