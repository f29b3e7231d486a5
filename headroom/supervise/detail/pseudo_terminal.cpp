#include "headroom/supervise/detail/pseudo_terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <array>
#include <cstdlib>

namespace headroom::supervise {

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

}  // namespace headroom::supervise
