// A command that runs below us as if nobody were between it and the terminal.
//
// It has a process group of its own; what it reads and writes passes through untouched (through a
// pseudo-terminal where ours is a terminal), signals that we get go to the whole group, and Ctrl-Z
// stops both. Its last output is kept. When the command ends, what is left of its tree is ended:
// it has 1 s to end by itself, then comes SIGTERM, and SIGKILL 5 s later.
//
// The command inherits what we were given: descriptors without FD_CLOEXEC, the signal mask that the
// maker of the Job has, ignored signals. So no signal may be blocked where a Job is made.
//
// Thread rule: everything happens in run(), in the calling thread, and one Job lives at a time.
// From its making to its end it owns the dispositions of SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1,
// SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT and SIGCHLD (not of those that are ignored: nohup), and
// SIGPIPE, SIGXFSZ, SIGTTIN and SIGTTOU are ignored. Other threads may exist, but fork no children
// into process groups of their own.
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
  std::vector<std::string> environment{};  // "NAME=value", over ours
  std::vector<int> inherited{};            // descriptors that the job keeps open: its lease
  bool output_to_error = false;            // its standard output goes to our standard error
  std::optional<sigset_t> signal_mask{};   // what it holds back at first; empty: as we do
};

struct JobEnd {
  int exit_code = 0;  // the command's own; 128 + signal; 127 not found, 126 not executable
  std::optional<int> signal;
  bool started = true;
  std::string not_started;      // why not: "No such file or directory"
  std::string last_output;      // the end of both streams as they came, at most 256 KiB
  std::optional<int> received;  // asked to end, and passed it on: the last of SIGTERM, SIGINT
                                // (also as a typed Ctrl-C), SIGHUP, SIGQUIT
  std::vector<std::string> ended_rest;  // commands of the processes that had to be ended
  std::vector<std::string> stuck;       // of these, who did not end even so: stuck in the kernel
  std::optional<int> unwritten_errno;   // why output of the job could not be written: ENOSPC, ...
  long long unwritten_bytes = 0;        // how much of it was lost
};

class Job {
 public:
  explicit Job(Launch launch);
  ~Job();  // ends what still runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Until the command has ended, its tree is gone and its output written. `each` is called about
  // every `interval`, never for an interval of 0. Throws BusyError where no process or no pipe can
  // be made; what `each` throws ends the job. Once only.
  JobEnd run(Seconds interval, const std::function<void(const Job&)>& each);

  // Within `each`, or from it:
  [[nodiscard]] pid_t pid() const;                // of the command itself
  [[nodiscard]] std::vector<pid_t> pids() const;  // of its tree, orphans included
  [[nodiscard]] Clock::time_point last_output_at() const;
  void end();  // asks the tree to end (SIGTERM), and forces it to after 10 s

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::job
