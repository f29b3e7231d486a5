#include "headroom/base/interrupt.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "headroom/base/error.h"

namespace headroom {
namespace {

// A signal that the parent ignored (nohup, a background job) stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t our_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

Interrupt::Interrupt() : done_(::eventfd(0, EFD_CLOEXEC)) {
  const sigset_t signals = our_signals();
  inbox_ = Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!done_.is_open() || !inbox_.is_open())
    throw BusyError("interrupt", "cannot listen for signals: " + std::string(std::strerror(errno)));
  watcher_ = std::thread([this] { watch(); });
}

Interrupt::~Interrupt() {
  const std::uint64_t once = 1;
  if (::write(done_.get(), &once, sizeof once) == sizeof once) watcher_.join();
  if (signal_ != 0 && !asked_) ::kill(::getpid(), signal_);
}

void Interrupt::watch() {
  std::array<pollfd, 2> both{pollfd{inbox_.get(), POLLIN, 0}, pollfd{done_.get(), POLLIN, 0}};
  Clock::time_point first{};
  while (true) {
    if (::poll(both.data(), both.size(), -1) < 0) continue;
    if (both[1].revents != 0) break;
    signalfd_siginfo received{};
    if (::read(inbox_.get(), &received, sizeof received) != sizeof received) continue;
    const int signal = static_cast<int>(received.ssi_signo);
    // A second signal ends the process at once. Programs such as `timeout` send each one twice.
    constexpr Seconds kOneSignal{0.5};
    if (signal_ != 0 && Clock::now() - first < kOneSignal) continue;
    if (signal_ != 0) std::_Exit(128 + signal);
    signal_ = signal;
    first = Clock::now();
    stop_.request_stop();
  }
}

SignalsHeld::SignalsHeld() : SignalsHeld(our_signals()) {}

SignalsHeld::SignalsHeld(const sigset_t& signals) {
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

SignalsHeld::~SignalsHeld() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool sleep_for(Seconds duration, const std::stop_token& token) {
  std::mutex guard;
  std::condition_variable_any sleeper;
  std::unique_lock lock(guard);
  sleeper.wait_for(lock, token, duration, [] { return false; });
  return !token.stop_requested();
}

}  // namespace headroom
