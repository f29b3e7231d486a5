// Handles Ctrl-Z and `fg`. When the job stops, this process gives the terminal back and stops, too,
// so the shell above sees what it would see without us. When this process continues, the job does.
//
// On a pseudo-terminal the kernel does not stop the job on Ctrl-Z, because its process group is
// orphaned (POSIX 3.264: no parent in its session could continue it). So SIGSTOP follows: at once
// if the command has no handler for SIGTSTP, else after a moment in which it can clean up its
// screen.
#pragma once

#include <sys/types.h>

#include <optional>

#include "headroom/base/time.h"
#include "headroom/job/detail/signal_inbox.h"
#include "headroom/job/detail/standard_streams.h"

namespace headroom::job {

class Stops {
 public:
  Stops(pid_t group, Streams& streams, SignalInbox& signals)
      : group_(group), streams_(streams), signals_(signals) {}

  void typed_suspend();     // Ctrl-Z was typed at the job's terminal
  void typed_interrupt();   // Ctrl-C where the job's terminal sends no signal
  void asked_to_suspend();  // this process got SIGTSTP
  void asked_to_go_on();    // this process got SIGCONT
  // This signal stopped the command. Returns when both continue.
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
  bool asked_ = false;  // a stop of the job was requested
  bool typed_ = false;  // by a key, which would stop our whole process group
};

}  // namespace headroom::job
