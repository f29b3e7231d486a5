// A command that runs below us as if nobody were between it and the terminal.
//
// It has a process group of its own; what it reads and writes passes through untouched (through a
// pseudo-terminal where ours is a terminal), signals that we get go to the whole group, and Ctrl-Z
// stops both. Its last output is kept. When the command ends, what is left of its tree is ended.
//
// Thread rule: everything happens in run(), in the calling thread. Make it before other threads:
// it takes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH and SIGCHLD over.
//
//   Job job({.command = {"python", "train.py"}});
//   JobEnd end = job.run(Seconds(1), [&](const Job& job) { sample(job.pids()); });
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/base/time.h"

namespace headroom::supervise {

struct Launch {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", over ours
  std::vector<int> inherited;            // descriptors that the job keeps open: its lease
  bool output_to_error = false;          // its standard output goes to our standard error
};

struct JobEnd {
  int exit_code = 0;  // the command's own; 128 + signal; 127 not found, 126 not executable
  std::optional<int> signal;
  bool started = true;
  std::string last_output;              // the end of both streams as they came, at most 256 KiB
  std::optional<int> received;          // a signal that we got and passed on: SIGTERM, SIGINT, ...
  std::vector<std::string> ended_rest;  // commands of the processes that had to be ended
};

class Job {
 public:
  explicit Job(Launch launch);
  ~Job();  // ends what still runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Until the command has ended and its tree is gone. `each` is called about every `interval`.
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

}  // namespace headroom::supervise
