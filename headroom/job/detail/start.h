// Starts a command: fork, set up streams, terminal and signals, exec.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "headroom/job/detail/signal_inbox.h"

namespace headroom::job {

struct StartPlan {
  const std::vector<std::string>& command;
  const std::vector<std::string>& environment;  // "NAME=value", added to ours
  const std::vector<int>& inherited;
  std::array<int, 3> standard{-1, -1, -1};  // become 0, 1, 2; -1 keeps this process's own
  int terminal = -1;                        // the controlling terminal of a new session; -1: none
  const sigset_t* signal_mask = nullptr;    // null means this process's own
};

struct Started {
  pid_t pid = 0;
  int error = 0;  // errno of exec; the process has been reaped then
};

// The command leads a new process group. Throws BusyError if no process can be made.
[[nodiscard]] Started start(const StartPlan& plan, const SignalInbox& inbox);

}  // namespace headroom::job
