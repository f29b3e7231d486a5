// How a tree comes to its end: a moment to end by itself, then SIGTERM, then SIGKILL, then nothing
// more that anybody could do.
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
  // The command itself has ended: what is left of its tree has 1 s, and 5 s more after SIGTERM.
  void command_ended(Clock::time_point now);

  // When advance() is to be called next.
  [[nodiscard]] std::optional<Clock::time_point> due() const;
  void advance(Clock::time_point now);
  // A hundred SIGKILLs, 0.1 s apart, did not help. Counted, not timed: while a machine is suspended
  // the clock goes on, and the processes do not.
  [[nodiscard]] bool is_hopeless() const { return hopeless_; }

  // Commands of those that had to be ended after the command itself, and of those that live on.
  [[nodiscard]] const std::vector<std::string>& ended_rest() const { return names_; }
  [[nodiscard]] std::vector<std::string> stuck() const;

 private:
  void send(int signal);

  ProcessTree& tree_;
  std::optional<Clock::time_point> terminate_at_, kill_at_;
  int kills_ = 0;
  bool command_ended_ = false;
  bool hopeless_ = false;
  std::set<ProcessIdentity> named_;
  std::vector<std::string> names_;
};

}  // namespace headroom::job
