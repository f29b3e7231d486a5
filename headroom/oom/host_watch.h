// Detects kills by the kernel for lack of host memory: reads counters of the control group and of
// the machine before and after, and the kernel's log if permitted. Reads a few small files, and the
// log only after a kill. A value that cannot be read is unknown, never an error.
//
// Thread rule: one thread at a time.
//
//   HostWatch watch;             // before the program starts
//   ...
//   HostKills host = watch.since(pids_of_the_program);
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace headroom::oom {

struct HostKills {
  // Processes killed for memory since the watch began; std::nullopt if the counter cannot be read.
  std::optional<long long> kills_in_group;    // memory.events of our control group: certainly ours
  std::optional<long long> kills_on_machine;  // /proc/vmstat: possibly another program's
  std::string kernel_line;  // the line of the kernel's log that names one of the pids
};

namespace detail {
class KernelLog;
}

class HostWatch {
 public:
  // `root` is "/", except in tests.
  explicit HostWatch(std::filesystem::path root = "/");
  // The kernel names processes by their numbers in the machine's first PID namespace. If this
  // process is in another one, the log is ignored.
  [[nodiscard]] HostKills since(const std::vector<pid_t>& pids) const;

 private:
  std::filesystem::path root_;
  std::optional<std::filesystem::path> counting_file_;  // of our control group
  std::optional<long long> group_before_, machine_before_;
  std::shared_ptr<detail::KernelLog> kernel_log_;  // from construction on; copies share it
};

}  // namespace headroom::oom
