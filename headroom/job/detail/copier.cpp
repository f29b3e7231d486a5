#include "headroom/job/detail/copier.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <string>

namespace headroom::job {
namespace {

// Opens the same pipe or terminal again: O_NONBLOCK on the shared open file would also affect other
// processes.
Descriptor opened_anew(int sink) {
  const std::string name = "/proc/self/fd/" + std::to_string(sink);
  return Descriptor(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
}

bool has(const std::vector<pollfd>& polled, std::size_t place, int events) {
  return place < polled.size() && (polled[place].revents & events) != 0;
}

constexpr std::size_t kNowhere = SIZE_MAX;

}  // namespace

Copier::Copier(Descriptor source, int sink) : source_(std::move(source)), sink_(sink) {
  struct stat file {};
  const bool known = ::fstat(sink, &file) == 0;
  is_terminal_ = ::isatty(sink) == 1;
  if (is_terminal_ || (known && S_ISFIFO(file.st_mode))) own_sink_ = opened_anew(sink);
  if (own_sink_.is_open()) sink_ = own_sink_.get();
  never_waits_ = own_sink_.is_open() || !known || S_ISREG(file.st_mode) ||
                 (S_ISCHR(file.st_mode) && !is_terminal_);
}

void Copier::prepare(std::vector<pollfd>& polled) {
  source_place_ = sink_place_ = kNowhere;
  if (ended()) return;
  if (pending().empty()) {
    source_place_ = polled.size();
    polled.push_back({.fd = source_.get(), .events = POLLIN, .revents = 0});
  }
  // Polled even without events, to notice a reader that goes away while the job is silent.
  sink_place_ = polled.size();
  const short events = pending().empty() ? short{0} : short{POLLOUT};
  polled.push_back({.fd = sink_, .events = events, .revents = 0});
}

void Copier::serve(const std::vector<pollfd>& polled,
                   const std::function<void(std::string_view)>& seen) {
  if (ended()) return;
  if (pending().empty() && has(polled, sink_place_, POLLERR | POLLHUP | POLLNVAL))
    return reader_gone();
  if (!pending().empty()) {
    if (!has(polled, sink_place_, POLLOUT | POLLERR | POLLHUP | POLLNVAL)) return;
    write(true);
    return;
  }
  if (has(polled, source_place_, POLLIN | POLLHUP | POLLERR) || end_expected_) read(seen);
  write(never_waits_);
}

void Copier::read(const std::function<void(std::string_view)>& seen) {
  if (!source_.is_open()) return;
  const ssize_t got = ::read(source_.get(), buffer_.get(), kReading);
  if (got < 0 && (errno == EINTR || (errno == EAGAIN && !end_expected_))) return;
  if (got <= 0) return source_.close();  // a pseudo-terminal ends with EIO
  written_ = 0;
  filled_ = static_cast<std::size_t>(got);
  seen(pending());
}

// A pipe that could not be opened again takes PIPE_BUF bytes when poll() reports room; more could
// block.
void Copier::write(bool has_room) {
  if (pending().empty() || !has_room) return;
  const std::size_t size =
      never_waits_ ? pending().size() : std::min<std::size_t>(pending().size(), PIPE_BUF);
  const ssize_t wrote = ::write(sink_, pending().data(), size);
  if (wrote < 0) return not_written(errno);
  written_ += static_cast<std::size_t>(wrote);
}

void Copier::not_written(int error) {
  if (error == EAGAIN || error == EINTR) return;
  if (error == EPIPE || error == ECONNRESET || (error == EIO && is_terminal_)) return reader_gone();
  unwritten_.error = error;
  unwritten_.bytes += static_cast<long long>(pending().size());
  written_ = filled_;
}

void Copier::reader_gone() {
  reader_is_gone_ = true;
  stop();
}

void Copier::stop() {
  source_.close();
  written_ = filled_;
}

}  // namespace headroom::job
