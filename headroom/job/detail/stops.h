// Ctrl-Z and `fg`: when the job stops we give the terminal back and stop as well, so that the shell
// above sees what it would see without us; when we go on, the job does.
//
// On a pseudo-terminal the kernel does not stop the job by Ctrl-Z: its group has no parent within
// its session that could continue it (an orphaned process group, POSIX 3.264). So SIGSTOP follows,
// at once where nobody handles SIGTSTP, or after a moment in which a program can tidy its screen
// up.
#pragma once

#include <sys/types.h>

#include <optional>

#include "headroom/base/time.h"
#include "headroom/job/detail/signal_inbox.h"
#include "headroom/job/detail/streams.h"

namespace headroom::job {

class Stops {
 public:
  Stops(pid_t group, Streams& streams, SignalInbox& signals)
      : group_(group), streams_(streams), signals_(signals) {}

  void typed_suspend();     // Ctrl-Z went to the job's terminal
  void typed_interrupt();   // Ctrl-C, and the job's terminal is none that makes a signal of it
  void asked_to_suspend();  // we got SIGTSTP
  void asked_to_go_on();    // we got SIGCONT
  // The command stopped by this signal. Returns when both go on again.
  void command_stopped(int signal);

  [[nodiscard]] std::optional<Clock::time_point> due() const { return stop_at_; }
  void advance(Clock::time_point now);

 private:
  void stop_soon();
  void stop_with_it(int signal, bool whole_group);
  void wants_terminal(int signal);

  pid_t group_;
  Streams& streams_;
  SignalInbox& signals_;
  std::optional<Clock::time_point> stop_at_;
  bool asked_ = false;  // we want it to stop
  bool typed_ = false;  // by a key that all of our own group would have felt
};

}  // namespace headroom::job
