// Processes of this machine, read from /proc.
//
// A process is its number *and* its start time: numbers are reused, so a number alone never proves
// that somebody is alive or dead.
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

// What changes from moment to moment; cheap to read (one small file).
struct ProcessStat {
  ProcessIdentity identity;
  pid_t parent = 0;
  char state = '?';         // R, S, D, T, Z, ... as in proc(5)
  long long cpu_ticks = 0;  // user + system time used so far
};

// What stays the same for a process's life.
struct ProcessFacts {
  std::string user;  // owner's name, or its number where the name is unknown
  uid_t uid = 0;
  std::string command;  // the command line, blanks between arguments; "[name]" if it is hidden
  WallTime started;
};

// `proc` is /proc, except in tests.
class ProcessTable {
 public:
  explicit ProcessTable(std::filesystem::path proc = "/proc");

  [[nodiscard]] std::optional<ProcessStat> stat(pid_t pid) const;
  [[nodiscard]] std::optional<ProcessFacts> facts(const ProcessStat& process) const;
  [[nodiscard]] bool alive(const ProcessIdentity& identity) const;

  // Whether the process numbers of the driver (those of the machine's first namespace) are ours.
  // In a container they are not: there the same number may be somebody else.
  [[nodiscard]] bool in_first_pid_namespace() const;

  // Whether the process holds a file below `prefix` ("/dev/nvidia") open; nothing if that may not
  // be looked at.
  [[nodiscard]] std::optional<bool> holds_open(pid_t pid, std::string_view prefix) const;

  // The files below `folder` that the process has mapped; nothing if that may not be looked at.
  [[nodiscard]] std::optional<std::vector<std::string>> mapped(
      pid_t pid, const std::filesystem::path& folder) const;

  [[nodiscard]] std::vector<pid_t> all() const;

 private:
  std::filesystem::path proc_;
  WallTime boot_;
};

[[nodiscard]] ProcessIdentity this_process();

// The user's name, or its number where the name is unknown. May ask a server for it.
[[nodiscard]] std::string user_name(uid_t uid);

// The outcome of a helper command that was run to its end or stopped at `limit`.
struct CommandResult {
  bool started = false;
  bool timed_out = false;
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;     // the first 64 KiB of its standard output
};

// Runs argv[0] (looked up in PATH) without a shell, its stderr discarded, with the environment of
// this process and `extra` ("NAME=value") over it. Never throws for what the command does.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& argv, Seconds limit,
                                        const std::vector<std::string>& extra = {});

}  // namespace headroom
