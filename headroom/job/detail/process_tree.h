// All processes that a command started, even outside its group, session or parent: while this
// object lives, orphans among our descendants become our children (PR_SET_CHILD_SUBREAPER).
//
// Excluded are earlier children of this process, and children in its own process group (helper
// tools).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "headroom/base/process.h"

namespace headroom::job {

class ProcessTree {
 public:
  ProcessTree();
  ~ProcessTree();
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  // Living processes, parents before their children.
  [[nodiscard]] std::vector<ProcessIdentity> living() const;
  [[nodiscard]] std::string command_of(const ProcessIdentity& process) const;
  // Never reaches another process that got the number since.
  void signal(const ProcessIdentity& process, int signal) const;

  // Reaps ended processes except `command`, for which the caller waits. True if no other process is
  // left.
  bool collect(pid_t command);

 private:
  [[nodiscard]] std::vector<pid_t> own_children() const;
  [[nodiscard]] bool is_of_job(const ProcessStat& child) const;

  ProcessTable table_;
  std::set<ProcessIdentity> strangers_;
  int subreaper_before_ = 0;
};

}  // namespace headroom::job
