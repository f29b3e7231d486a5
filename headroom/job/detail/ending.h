// Ends a process tree: first a moment to end by itself, then SIGTERM, then SIGKILL, then giving up.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headroom/base/time.h"
#include "headroom/job/detail/process_tree.h"

namespace headroom::job {

class Ending {
 public:
  explicit Ending(ProcessTree& tree) : tree_(tree) {}

  // SIGTERM now, SIGKILL after 10 s.
  void ask(Clock::time_point now);
  // The command itself has ended: the rest of its tree gets SIGTERM after 1 s and SIGKILL 5 s
  // later.
  void command_ended(Clock::time_point now);

  // The time of the next call of advance().
  [[nodiscard]] std::optional<Clock::time_point> due() const;
  void advance(Clock::time_point now);
  // True after 100 SIGKILLs, 0.1 s apart. Counted and not timed, because a clock runs on while a
  // machine is suspended.
  [[nodiscard]] bool has_given_up() const { return given_up_; }

  // Commands of processes that had to be ended after the command itself, and of those still alive.
  [[nodiscard]] const std::vector<std::string>& ended_rest() const { return names_; }
  [[nodiscard]] std::vector<std::string> stuck() const;

 private:
  void send(int signal);

  ProcessTree& tree_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
  int kills_ = 0;
  bool command_ended_ = false;
  bool given_up_ = false;
  std::set<ProcessIdentity> named_;
  std::vector<std::string> names_;
};

}  // namespace headroom::job
