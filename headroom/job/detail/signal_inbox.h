// The signals that a job is to get, as something that can be polled.
//
// Handlers and a pipe, not a signalfd: a signal then arrives whichever thread the kernel picks,
// also one that was made earlier and does not block it. What our parent had ignored stays ignored.
// One at a time: handlers have no owner.
//
//   SignalInbox inbox;
//   poll(inbox.descriptor());
//   for (const int signal : inbox.take()) pass_on(signal);
#pragma once

#include <csignal>
#include <vector>

#include "headroom/base/descriptor.h"

namespace headroom::job {

class SignalInbox {
 public:
  SignalInbox();
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  [[nodiscard]] int descriptor() const { return readable_.get(); }
  // What came since the last time, each signal once.
  [[nodiscard]] std::vector<int> take();

  // What a stop signal does to somebody who does not handle it. False if it stopped nobody: the
  // kernel stops none that no shell could continue.
  bool stop_this_process(int signal);

  // In a forked child: its signals as ours were before us, or with this mask. Safe after fork().
  void give_back_in_child(const sigset_t* mask) const;

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  void replace(int signal, void (*handler)(int));

  Descriptor readable_, writable_;
  std::vector<Before> before_;
  sigset_t mask_{};
};

// Holds all signals back, so that none is handled between fork() and exec().
class SignalPause {
 public:
  SignalPause();
  ~SignalPause();
  SignalPause(const SignalPause&) = delete;
  SignalPause& operator=(const SignalPause&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace headroom::job
