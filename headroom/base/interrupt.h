// SIGINT, SIGTERM, SIGHUP and SIGQUIT as a request to stop, instead of a sudden end: loops look at
// the token, leave nothing half-written, and exit with 128 + signal.
//
// Must be made before any other thread: the signals are blocked, and threads inherit that. Its end
// leaves them as they were before; one that came and that nobody asked about is sent once more.
#pragma once

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

namespace headroom {

class Interrupt {
 public:
  Interrupt();  // throws BusyError without a descriptor for it
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  [[nodiscard]] bool happened() const { return asked_ = signal_ != 0; }
  // 128 + the signal, 130 for Ctrl-C.
  [[nodiscard]] int exit_code() const { return 128 + signal_; }

 private:
  void watch();
  void close_all();

  sigset_t before_;
  std::stop_source stop_;
  std::atomic<int> signal_{0};
  mutable bool asked_ = false;  // and was told of it
  int done_ = -1;               // an event that ends the watch
  int inbox_ = -1;
  std::thread watcher_;
};

// Holds the same signals back from this thread and those that it makes, for work that must not be
// torn: each waits for the next Interrupt, or for the end of this.
class SignalsHeld {
 public:
  SignalsHeld();
  ~SignalsHeld();
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // What was held back before: what a child is to inherit.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

// Sleeps, unless interrupted meanwhile. True if the whole time passed.
bool sleep_for(double seconds, const std::stop_token& token);

}  // namespace headroom
