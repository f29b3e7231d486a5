// Whether the kernel killed something for want of host memory meanwhile: counters of the control
// group and of the machine, read before and after, and what the kernel's log says if it may be
// read. Reads a handful of small files, the log only where somebody was killed; what cannot be read
// is not known, never an error.
//
// Thread rule: none; one thread at a time.
//
//   HostWatch watch;             // before the program starts
//   ...
//   HostPressure host = watch.since(pids_of_the_program);
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace headroom::oom {

struct HostPressure {
  // Processes killed for memory since the watch began; empty where nobody may count.
  std::optional<long long> kills_in_group;    // memory.events of our control group: ours, surely
  std::optional<long long> kills_on_machine;  // /proc/vmstat: perhaps somebody else's
  std::string kernel_line;                    // of the kernel's log, naming one of the pids
};

namespace detail {
class KernelLog;
}

class HostWatch {
 public:
  // `root` is "/", except in tests.
  explicit HostWatch(std::filesystem::path root = "/");
  // The kernel names processes by their numbers in the machine's first namespace; if ours are
  // others, its log is left alone.
  [[nodiscard]] HostPressure since(const std::vector<pid_t>& pids) const;

 private:
  std::filesystem::path root_;
  std::optional<std::filesystem::path> counting_file_;  // of our control group
  std::optional<long long> group_before_, machine_before_;
  std::shared_ptr<detail::KernelLog> kernel_log_;  // from now on; copies share it
};

}  // namespace headroom::oom
