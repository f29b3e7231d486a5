// Processes of this machine, read from /proc, and run_command(), which starts one.
//
// A process is identified by its number *and* its start time: the system reuses numbers, so a
// number alone never proves that a process is alive or dead.
#pragma once

#include <sys/types.h>

#include <compare>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/time.h"

namespace headroom {

struct ProcessIdentity {
  pid_t pid = 0;
  long long start_ticks = 0;  // clock ticks after boot, field 22 of /proc/PID/stat
  auto operator<=>(const ProcessIdentity&) const = default;
};

// The changing part of a process; cheap to read (one small file).
struct ProcessStat {
  ProcessIdentity identity;
  pid_t parent = 0;
  char state = '?';         // R, S, D, T, Z, ... as in proc(5)
  long long cpu_ticks = 0;  // user + system time used so far
};

// The fixed part of a process.
struct ProcessFacts {
  std::string user;  // owner's name, or its number where the name is unknown
  uid_t uid = 0;
  std::string command;  // blanks between arguments; "[name]" if the command line is hidden
  WallTime started;
};

// `proc` is /proc except in tests.
class ProcessTable {
 public:
  explicit ProcessTable(std::filesystem::path proc = "/proc");

  [[nodiscard]] std::optional<ProcessStat> stat(pid_t pid) const;
  [[nodiscard]] std::optional<ProcessFacts> facts(const ProcessStat& process) const;
  [[nodiscard]] bool alive(const ProcessIdentity& identity) const;

  // True if this process is in the machine's first PID namespace, whose process numbers the driver
  // reports. In a container the same number may belong to another process.
  [[nodiscard]] bool in_first_pid_namespace() const;

  // True if the process has a file below `prefix` ("/dev/nvidia") open; std::nullopt without
  // permission to look.
  [[nodiscard]] std::optional<bool> holds_open(pid_t pid, std::string_view prefix) const;

  // The files below `folder` that the process has mapped; std::nullopt without permission to look.
  [[nodiscard]] std::optional<std::vector<std::string>> mapped(
      pid_t pid, const std::filesystem::path& folder) const;

  [[nodiscard]] std::vector<pid_t> all() const;

 private:
  std::filesystem::path proc_;
  WallTime boot_;
};

[[nodiscard]] ProcessIdentity this_process();

// The folder of this program.
[[nodiscard]] std::filesystem::path own_folder();

// The user's name, or its number if the name is unknown. The lookup may ask a server.
[[nodiscard]] std::string user_name(uid_t uid);

// The environment of this process; entries of `extra` ("NAME=value") override its own.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::string>& extra);

// A null-terminated list of pointers into `texts`, which must outlive them.
[[nodiscard]] std::vector<char*> pointers_to(std::vector<std::string>& texts);

// The outcome of a helper command that ended or was stopped at `limit`.
struct CommandResult {
  bool started = false;
  bool timed_out = false;
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;     // the first 64 KiB of its standard output
};

// Runs argv[0] (looked up in PATH) without a shell and discards its stderr. The command inherits
// this process's environment, overridden by `extra` ("NAME=value"). Never throws for a failure of
// the command.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& argv, Seconds limit,
                                        const std::vector<std::string>& extra = {});

}  // namespace headroom
