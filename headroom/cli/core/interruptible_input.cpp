#include "headroom/cli/core/interruptible_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/base/error.h"

namespace headroom::cli {
namespace {

constexpr int kLookEvery_ms = 50;
constexpr std::size_t kPiece = std::size_t{64} << 10;

// False if `stop` or `unwanted` was requested first.
bool wait_for(int descriptor, short what, const std::stop_token& stop,
              const std::stop_token& unwanted) {
  pollfd wanted{.fd = descriptor, .events = what, .revents = 0};
  while (!stop.stop_requested() && !unwanted.stop_requested())
    if (::poll(&wanted, 1, kLookEvery_ms) > 0) return true;
  return false;
}

// True for errors that pass: another reader of the same input may have been faster.
bool is_passing(int error) {
  return error == EINTR || error == EAGAIN;
}

}  // namespace

InterruptibleInput::InterruptibleInput(const std::stop_token& stop)
    : with_given_(stop, [this] { ended_.request_stop(); }) {
  int ends[2] = {};
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  real_ = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  if (real_ >= 0) ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  if (real_ < 0) {
    ::close(ends[1]);
    return;
  }
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  filler_ =
      std::jthread([this, to = ends[1]](const std::stop_token& unwanted) { fill(to, unwanted); });
}

InterruptibleInput::~InterruptibleInput() {
  if (real_ < 0) return;
  ::dup2(real_, STDIN_FILENO);
  filler_.request_stop();  // the thread may wait for input that has no reader
  filler_.join();
  ::close(real_);
}

void InterruptibleInput::check() const {
  if (error_ != 0)
    throw InputError(std::string("cannot read standard input: ") + std::strerror(error_));
}

void InterruptibleInput::give_up(int error) {
  error_ = error;
  ended_.request_stop();  // first, so that the pipe's end is not taken for the end of the input
}

void InterruptibleInput::fill(int to, const std::stop_token& unwanted) {
  // A reader that stopped early must not kill the process.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  const std::stop_token ended = token();
  const auto pass_on = [&](std::string_view piece) {
    while (!piece.empty() && wait_for(to, POLLOUT, ended, unwanted)) {
      const ssize_t written = ::write(to, piece.data(), piece.size());
      if (written < 0 && is_passing(errno)) continue;
      if (written <= 0) return false;
      piece.remove_prefix(static_cast<std::size_t>(written));
    }
    return piece.empty();
  };
  std::vector<char> buffer(kPiece);
  while (wait_for(real_, POLLIN, ended, unwanted)) {
    const ssize_t got = ::read(real_, buffer.data(), buffer.size());
    if (got < 0 && is_passing(errno)) continue;
    if (got < 0) give_up(errno);
    if (got <= 0 || !pass_on({buffer.data(), static_cast<std::size_t>(got)})) break;
  }
  ::close(to);
}

}  // namespace headroom::cli
