#include "headroom/job/detail/pseudo_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace headroom::job {

namespace {

// The usual modes of a terminal: lines, echo and signals.
void make_usual(termios& modes) {
  modes.c_iflag |= ICRNL;
  modes.c_oflag |= OPOST | ONLCR;
  modes.c_lflag |= ICANON | ECHO | ISIG | IEXTEN;
}

}  // namespace

bool is_foreground_of(int terminal) {
  const pid_t group = ::tcgetpgrp(terminal);
  return group < 0 || group == ::getpgrp();
}

std::optional<PseudoTerminal> open_pseudo_terminal(int like, bool plain_output) {
  PseudoTerminal made;
  made.ours = Descriptor(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!made.ours.is_open()) return {};
  std::array<char, 128> name{};
  if (::grantpt(made.ours.get()) != 0 || ::unlockpt(made.ours.get()) != 0 ||
      ::ptsname_r(made.ours.get(), name.data(), name.size()) != 0)
    return {};
  made.jobs = Descriptor(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!made.jobs.is_open()) return {};
  termios modes{};
  if (::tcgetattr(like, &modes) == 0) {
    if (!is_foreground_of(like)) make_usual(modes);
    if (plain_output) modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
    ::tcsetattr(made.jobs.get(), TCSANOW, &modes);
  }
  copy_terminal_size(like, made.ours.get());
  return made;
}

void copy_terminal_size(int from, int to) {
  winsize size{};
  if (::ioctl(from, TIOCGWINSZ, &size) == 0) ::ioctl(to, TIOCSWINSZ, &size);
}

}  // namespace headroom::job
