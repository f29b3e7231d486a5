// Turns SIGINT, SIGTERM, SIGHUP and SIGQUIT into a request to stop: loops check the token, leave
// nothing half-written, and exit with 128 + signal.
//
// Construct it before any other thread: it blocks the signals, and threads inherit the block. The
// destructor restores the signal mask; a signal that arrived but was never read with happened() is
// raised again.
#pragma once

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

#include "headroom/base/descriptor.h"
#include "headroom/base/time.h"

namespace headroom {

// Blocks these signals, or others, in this thread and the threads it starts, for work that must not
// be interrupted. Each blocked signal waits for the next Interrupt or for the end of this object.
class SignalsHeld {
 public:
  SignalsHeld();
  explicit SignalsHeld(const sigset_t& signals);
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // The signal mask from before; a child process must inherit this one.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

class Interrupt {
 public:
  // A second signal, more than half a second later, ends the process at once.
  Interrupt();  // throws BusyError when no descriptor is left
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  [[nodiscard]] bool happened() const { return asked_ = signal_ != 0; }
  // 128 + the signal, 130 for Ctrl-C.
  [[nodiscard]] int exit_code() const { return 128 + signal_; }

 private:
  void watch();

  SignalsHeld held_;
  std::stop_source stop_;
  std::atomic<int> signal_{0};
  mutable bool asked_ = false;  // happened() has reported the signal
  Descriptor done_;             // eventfd that ends the watcher
  Descriptor inbox_;
  std::thread watcher_;
};

// Sleeps until the time has passed or a stop is requested. True if the whole time passed.
bool sleep_for(Seconds duration, const std::stop_token& token);

}  // namespace headroom
