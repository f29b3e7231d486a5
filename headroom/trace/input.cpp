#include "headroom/trace/input.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::trace {
namespace {

// Large enough to make the cost of system calls negligible, small enough for the CPU's cache.
constexpr std::size_t kWindow = std::size_t{256} << 10;

[[noreturn]] void cannot_read(const std::string& name, int error) {
  throw InputError("trace", "cannot read " + name + ": " + std::strerror(error));
}

int open_named(const std::filesystem::path& path) {
  // Duplicates the descriptor, so that closing it leaves standard input open.
  if (path == "-") return ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

std::size_t read_some(int descriptor, char* to, std::size_t room, const std::string& name) {
  while (true) {
    const ssize_t got = ::read(descriptor, to, room);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) cannot_read(name, errno);
  }
}

}  // namespace

Input Input::file(const std::filesystem::path& path) {
  Input input;
  input.name_ = path == "-" ? "standard input" : path.string();
  input.descriptor_ = Descriptor(open_named(path));
  if (!input.descriptor_.is_open()) cannot_read(input.name_, errno);
  struct stat found {};
  if (::fstat(input.descriptor_.get(), &found) != 0) cannot_read(input.name_, errno);
  if (S_ISDIR(found.st_mode)) cannot_read(input.name_, EISDIR);
  if (S_ISREG(found.st_mode)) input.size_ = static_cast<std::uint64_t>(found.st_size);
  return input;
}

Input Input::memory(std::string name, std::string_view bytes) {
  Input input;
  input.name_ = std::move(name);
  input.memory_ = bytes;
  input.size_ = bytes.size();
  return input;
}

std::string_view Input::peek(std::size_t wanted) {
  if (!descriptor_.is_open()) return memory_.substr(0, wanted);
  if (end_ - begin_ < wanted) {
    if (begin_ + wanted > window_.size()) {
      if (begin_ > 0) std::memmove(window_.data(), window_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
      if (wanted > window_.size()) window_.resize(std::max(wanted, kWindow));
    }
    while (end_ - begin_ < wanted) {
      const std::size_t got =
          read_some(descriptor_.get(), window_.data() + end_, window_.size() - end_, name_);
      if (got == 0) break;
      end_ += got;
    }
  }
  return {window_.data() + begin_, std::min(wanted, end_ - begin_)};
}

void Input::skip(std::size_t count) {
  const std::size_t shown = !descriptor_.is_open() ? memory_.size() : end_ - begin_;
  if (count > shown)
    throw InternalError(expectation("trace", "at most " + std::to_string(shown) + " bytes to skip",
                                    std::to_string(count)));
  if (!descriptor_.is_open()) {
    memory_.remove_prefix(count);
  } else {
    begin_ += count;
  }
  position_ += count;
}

}  // namespace headroom::trace
