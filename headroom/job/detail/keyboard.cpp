#include "headroom/job/detail/keyboard.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace headroom::job {
namespace {

bool has_key(std::string_view text, cc_t key) {
  return key != _POSIX_VDISABLE && text.find(static_cast<char>(key)) != std::string_view::npos;
}

}  // namespace

void Keyboard::prepare(std::vector<pollfd>& polled, bool ours) {
  place_ = SIZE_MAX;  // not polled
  if (ended_ || (pending().empty() && !ours)) return;
  place_ = polled.size();
  if (pending().empty())
    polled.push_back({.fd = terminal_, .events = POLLIN, .revents = 0});
  else
    polled.push_back({.fd = job_, .events = POLLOUT, .revents = 0});
}

Typed Keyboard::serve(const std::vector<pollfd>& polled) {
  if (place_ >= polled.size() || polled[place_].revents == 0) return {};
  return pending().empty() ? read() : write();
}

Typed Keyboard::read() {
  const ssize_t got = ::read(terminal_, buffer_.data(), buffer_.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  if (got < 0 && errno == EIO) return {.nothing = true};  // another foreground group, for now
  if (got <= 0) {
    ended_ = true;
    return {};
  }
  written_ = 0;
  filled_ = static_cast<std::size_t>(got);
  return write();
}

Typed Keyboard::write() {
  if (pending().empty()) return {};
  termios modes{};
  const bool signals = ::tcgetattr(job_, &modes) == 0 && (modes.c_lflag & ISIG) != 0;
  const ssize_t wrote = ::write(job_, pending().data(), pending().size());
  if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (wrote < 0) {
    ended_ = true;
    written_ = filled_;
    return {};
  }
  const std::string_view sent = pending().substr(0, static_cast<std::size_t>(wrote));
  written_ += sent.size();
  if (!signals) return {};
  return {.interrupt = has_key(sent, modes.c_cc[VINTR]),
          .suspend = has_key(sent, modes.c_cc[VSUSP])};
}

}  // namespace headroom::job
