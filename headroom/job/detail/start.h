// From us to the command: fork, put everything in its place, exec.
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

#include "headroom/job/detail/signal_inbox.h"

namespace headroom::job {

struct StartPlan {
  const std::vector<std::string>& command;
  const std::vector<std::string>& environment;  // "NAME=value", over ours
  const std::vector<int>& inherited;
  std::array<int, 3> standard{-1, -1, -1};  // what becomes 0, 1, 2; -1: as ours is
  int terminal = -1;  // becomes the controlling one, in a session of the command's own
  const sigset_t* signal_mask = nullptr;  // none: as ours was
};

struct Started {
  pid_t pid = 0;
  int error = 0;  // errno of exec; the process is gone then, and collected
};

// The command leads a process group of its own. Throws BusyError where no process can be made.
[[nodiscard]] Started start(const StartPlan& plan, const SignalInbox& inbox);

}  // namespace headroom::job
