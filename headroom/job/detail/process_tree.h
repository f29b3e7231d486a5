// Everything that a command started, also what left its group, its session or its parent: while
// this exists, orphans among our descendants become our children (PR_SET_CHILD_SUBREAPER).
//
// Not of the job: children that we had before, and children that stayed in our own process group (a
// tool that this process asks something).
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

  // Parents before their children; those that have ended are left out.
  [[nodiscard]] std::vector<ProcessIdentity> living() const;
  [[nodiscard]] std::string command_of(const ProcessIdentity& process) const;
  // To this process and to nobody who got its number since.
  void signal(const ProcessIdentity& process, int signal) const;

  // Takes the ended ones off the system's list: `command` excepted, whom
  // the caller waits for. True if nobody else is left.
  bool collect(pid_t command);

 private:
  [[nodiscard]] std::vector<pid_t> own_children() const;
  [[nodiscard]] bool is_of_job(const ProcessStat& child) const;

  ProcessTable table_;
  std::set<ProcessIdentity> strangers_;
  int subreaper_before_ = 0;
};

}  // namespace headroom::job
