// What the kernel logs about processes that it killed for want of memory, from now on.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::oom::detail {

class KernelLog {
 public:
  // Not readable, as for most users: then it stays empty.
  explicit KernelLog(const std::filesystem::path& device);
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  // The first line since then that names one of the processes as killed.
  [[nodiscard]] std::string line_naming(const std::vector<pid_t>& pids);

 private:
  void read_new();

  int descriptor_ = -1;
  std::vector<std::string> kills_;
};

}  // namespace headroom::oom::detail
