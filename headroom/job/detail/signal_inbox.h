// Collects the signals that go to the job, behind a descriptor that can be polled.
//
// Uses handlers and a pipe, not a signalfd: a signal then arrives in any thread, even an earlier
// one that does not block it. Signals that our parent ignored stay ignored. Only one may exist,
// because handlers are global.
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
  // The signals since the last call, each once.
  [[nodiscard]] std::vector<int> take();

  // Stops this process as an unhandled stop signal does. False if the kernel did not stop it,
  // because no shell could continue it.
  bool stop_this_process(int signal);

  // In a forked child: restores the signals from before this object, or sets this mask. Safe after
  // fork().
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

}  // namespace headroom::job
