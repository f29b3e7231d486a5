#include "headroom/job/detail/signal_inbox.h"

#include <fcntl.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "headroom/base/error.h"

namespace headroom::job {
namespace {

// Written by the handlers for the only inbox.
std::array<std::atomic<bool>, NSIG> g_came{};
std::atomic<int> g_wake{-1};

void note(int signal) {
  const int error = errno;
  g_came[static_cast<std::size_t>(signal)] = true;
  const char byte = 0;
  // If the pipe is full, the reader wakes anyway.
  [[maybe_unused]] const ssize_t written = ::write(g_wake, &byte, 1);
  errno = error;
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

SignalInbox::SignalInbox() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw BusyError("job", "cannot make a pipe: " + std::string(std::strerror(errno)));
  readable_ = Descriptor(ends[0]);
  writable_ = Descriptor(ends[1]);
  for (auto& came : g_came) came = false;
  g_wake = writable_.get();

  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP})
    replace(signal, note);
  for (const int signal : {SIGCONT, SIGWINCH, SIGCHLD}) replace(signal, note);
  // Ignored, so that the write or read that causes them fails with an error.
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGTTIN, SIGTTOU}) replace(signal, SIG_IGN);
  // Pending signals arrive at once.
  sigset_t handled;
  sigemptyset(&handled);
  for (const Before& before : before_) sigaddset(&handled, before.signal);
  pthread_sigmask(SIG_UNBLOCK, &handled, &mask_);
}

SignalInbox::~SignalInbox() {
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  for (const Before& before : before_) ::sigaction(before.signal, &before.action, nullptr);
  g_wake = -1;
}

void SignalInbox::replace(int signal, void (*handler)(int)) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  const bool wanted_in_any_case = signal == SIGCHLD || signal == SIGCONT || signal == SIGWINCH;
  if (is_ignored(now) && !wanted_in_any_case) return;
  before_.push_back({signal, now});
  struct sigaction ours {};
  ours.sa_handler = handler;  // without SA_RESTART, so that a blocked write returns
  ::sigaction(signal, &ours, nullptr);
}

std::vector<int> SignalInbox::take() {
  std::array<char, 256> bytes;  // NOLINT: filled by read
  while (::read(readable_.get(), bytes.data(), bytes.size()) > 0) {
  }
  std::vector<int> signals;
  for (int signal = 1; signal < NSIG; ++signal)
    if (g_came[static_cast<std::size_t>(signal)].exchange(false)) signals.push_back(signal);
  return signals;
}

bool SignalInbox::stop_this_process(int signal) {
  struct sigaction ours {
  }, plain{};
  plain.sa_handler = SIG_DFL;
  g_came[SIGCONT] = false;
  ::sigaction(signal, &plain, &ours);
  ::raise(signal);  // returns when the process is continued
  ::sigaction(signal, &ours, nullptr);
  return g_came[SIGCONT].exchange(false);
}

void SignalInbox::give_back_in_child(const sigset_t* mask) const {
  for (const Before& before : before_) {
    struct sigaction action {};
    action.sa_handler = is_ignored(before.action) ? SIG_IGN : SIG_DFL;
    ::sigaction(before.signal, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, mask != nullptr ? mask : &mask_, nullptr);
}

}  // namespace headroom::job
