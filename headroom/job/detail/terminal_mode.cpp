#include "headroom/job/detail/terminal_mode.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>

namespace headroom::job {
namespace {

constexpr std::array kFaults{SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS};

// For handlers: the terminal to restore, its modes, and the actions from before.
std::atomic<int> g_terminal{-1};
termios g_before{};
std::array<struct sigaction, kFaults.size()> g_actions{};

void put_right() {
  const int terminal = g_terminal.exchange(-1);
  if (terminal >= 0) ::tcsetattr(terminal, TCSANOW, &g_before);
}

void put_right_and_die(int signal) {
  put_right();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void catch_faults() {
  [[maybe_unused]] static const int once = std::atexit(put_right);
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    ::sigaction(kFaults[i], nullptr, &g_actions[i]);
    if (g_actions[i].sa_handler != SIG_DFL) continue;  // another handler; leave it in place
    struct sigaction ours {};
    ours.sa_handler = put_right_and_die;
    ours.sa_flags = SA_NODEFER;
    ::sigaction(kFaults[i], &ours, nullptr);
  }
}

void release_faults() {
  for (std::size_t i = 0; i < kFaults.size(); ++i)
    if (g_actions[i].sa_handler == SIG_DFL) ::sigaction(kFaults[i], &g_actions[i], nullptr);
}

}  // namespace

RawTerminal::RawTerminal(int terminal) : terminal_(terminal) {}

RawTerminal::~RawTerminal() {
  leave();
}

void RawTerminal::enter() {
  if (raw_ || ::tcgetattr(terminal_, &before_) != 0) return;
  g_before = before_;
  g_terminal = terminal_;
  catch_faults();
  raw_ = true;
  renew();
}

void RawTerminal::renew() {
  if (!raw_) return;
  termios raw = before_;
  ::cfmakeraw(&raw);
  raw.c_cflag = before_.c_cflag;  // the bits of a byte belong to the line
  if (::tcsetattr(terminal_, TCSANOW, &raw) != 0) forget();
}

void RawTerminal::leave() {
  if (!raw_) return;
  ::tcsetattr(terminal_, TCSANOW, &before_);
  forget();
}

void RawTerminal::forget() {
  if (!raw_) return;
  g_terminal = -1;
  release_faults();
  raw_ = false;
}

}  // namespace headroom::job
