#include "headroom/cli/core/serve/client_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace headroom::cli {
namespace {

bool would_block(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

Clock::time_point after(Clock::time_point start, Seconds time) {
  return start + std::chrono::duration_cast<Clock::duration>(time);
}

}  // namespace

bool ClientStream::wait_for(short events, Clock::time_point deadline) const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd one{socket_, events, 0};
  return left.count() > 0 && ::poll(&one, 1, static_cast<int>(left.count())) != 0;
}

// A request that is there already is read even if it had to wait for a thread for longer than its
// time.
bool ClientStream::fill() {
  while (received_ < bounds_.request_bytes) {
    const std::size_t most = std::min(buffer_.size(), bounds_.request_bytes - received_);
    const ssize_t got = ::recv(socket_, buffer_.data(), most, MSG_DONTWAIT);
    if (got > 0) {
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
      received_ += end_;
      return true;
    }
    if (!would_block(got) || !wait_for(POLLIN, after(accepted_, bounds_.request))) return false;
  }
  return false;
}

ssize_t ClientStream::read(char* to, size_t size) {
  if (begin_ == end_ && !fill()) return -1;
  const std::size_t count = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t ClientStream::write(const char* from, size_t size) {
  if (!answer_due_) answer_due_ = after(Clock::now(), bounds_.answer);
  while (true) {
    const ssize_t sent = ::send(socket_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (!would_block(sent) || !wait_for(POLLOUT, *answer_due_)) return -1;
  }
}

void ClientStream::finish() const {
  ::shutdown(socket_, SHUT_WR);
  std::array<char, 4096> rest;
  constexpr int kMostReads = 64;  // 256 KiB
  for (int n = 0; n < kMostReads; ++n)
    if (::recv(socket_, rest.data(), rest.size(), MSG_DONTWAIT) <= 0) return;
}

}  // namespace headroom::cli
