#include "headroom/base/interrupt.h"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>

namespace headroom {
namespace {

// What the parent had ignored (nohup, a job in the background) stays so.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t our_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t signals = our_signals();
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
  watcher_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  done_ = true;
  watcher_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupt::watch() {
  const sigset_t signals = our_signals();
  const timespec tick{.tv_sec = 0, .tv_nsec = 50'000'000};
  while (!done_) {
    const int signal = sigtimedwait(&signals, nullptr, &tick);
    if (signal <= 0) continue;
    // A second Ctrl-C means now.
    if (signal_ != 0) std::_Exit(128 + signal);
    signal_ = signal;
    stop_.request_stop();
  }
}

bool sleep_for(double seconds, const std::stop_token& token) {
  std::mutex guard;
  std::condition_variable_any sleeper;
  std::unique_lock lock(guard);
  sleeper.wait_for(lock, token, std::chrono::duration<double>(seconds), [] { return false; });
  return !token.stop_requested();
}

}  // namespace headroom
