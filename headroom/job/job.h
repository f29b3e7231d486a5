// Runs a command below this process with its terminal, signals and exit code passed through.
//
// The command gets its own process group. Its input and output pass through unchanged (through a
// pseudo-terminal where ours is a terminal), signals to this process go to the whole group, and
// Ctrl-Z stops both. The end of its output is kept. When the command ends, the rest of its process
// tree has 1 s to end by itself; then it gets SIGTERM, and SIGKILL 5 s later.
//
// The command inherits descriptors without FD_CLOEXEC, the signal mask of the thread that makes the
// Job, and ignored signals. So block no signal in that thread.
//
// Thread rule: everything happens in run(), in the calling thread, and one Job lives at a time.
// While it lives it handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP,
// SIGCONT and SIGCHLD (unless ignored, as under nohup), and ignores SIGPIPE, SIGXFSZ, SIGTTIN and
// SIGTTOU. Other threads may exist, but must not fork children into new process groups.
//
//   Job job({.command = {"python", "train.py"}});
//   JobEnd end = job.run(Seconds(1), [&](const Job& job) { sample(job.pids()); });
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/base/time.h"

namespace headroom::job {

struct Launch {
  std::vector<std::string> command{};
  std::vector<std::string> environment{};  // "NAME=value", added to ours
  std::vector<int> inherited{};  // descriptors that stay open in the job, such as its lease
  bool output_to_error = false;  // its standard output goes to our standard error
  // The signals blocked at its start; std::nullopt: those blocked in this thread.
  std::optional<sigset_t> signal_mask{};
};

struct JobEnd {
  int exit_code = 0;  // the command's own; 128 + signal; 127 not found, 126 not executable
  std::optional<int> signal;
  bool started = true;
  std::string not_started;      // the reason: "No such file or directory"
  std::string last_output;      // the end of both streams, interleaved as written; at most 256 KiB
  std::optional<int> received;  // the last request to end that was passed on: SIGTERM, SIGINT
                                // (also a typed Ctrl-C), SIGHUP or SIGQUIT
  std::vector<std::string> ended_rest;  // commands of other processes that had to be ended
  std::vector<std::string> stuck;       // those that did not end: stuck in the kernel
  std::optional<int> unwritten_errno;   // why output could not be written: ENOSPC, ...
  long long unwritten_bytes = 0;        // how much output was lost
};

class Job {
 public:
  explicit Job(Launch launch);
  ~Job();  // kills processes that still run
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Returns when the command has ended, its process tree is gone and its output is written. Calls
  // `each` about every `interval`; an interval of 0 means never. Throws BusyError if no process or
  // pipe can be made. An exception of `each` kills the job and goes on to the caller. Call it once.
  JobEnd run(Seconds interval, const std::function<void(const Job&)>& each);

  // For use in `each`:
  [[nodiscard]] pid_t pid() const;                // of the command itself
  [[nodiscard]] std::vector<pid_t> pids() const;  // the whole tree, orphans included
  [[nodiscard]] Clock::time_point last_output_at() const;
  void end();  // SIGTERM to the tree now, SIGKILL after 10 s

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::job
