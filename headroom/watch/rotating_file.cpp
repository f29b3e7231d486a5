#include "headroom/watch/rotating_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::watch {

RotatingFile::RotatingFile(std::filesystem::path path, std::string header, RotationOptions options)
    : path_(std::move(path)), header_(std::move(header)), options_(options) {
  open();
}

RotatingFile::~RotatingFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RotatingFile::open() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw WriteError("log", "cannot write " + path_.string() + ": " + std::strerror(errno));
  struct stat found {};
  const bool known = ::fstat(fd_, &found) == 0;
  size_ = Bytes{known ? found.st_size : 0};
  // A pipe or /dev/null cannot be renamed or truncated.
  is_file_ = known && S_ISREG(found.st_mode);
  if (size_ == Bytes{0} && !header_.empty()) {
    write_all(fd_, header_, path_);
    size_ += Bytes{static_cast<std::int64_t>(header_.size())};
  } else if (is_file_ && size_ > Bytes{0}) {
    refuse_other_content();
  }
}

// Mixing columns, or JSON and CSV rows, in one file would make the file useless.
void RotatingFile::refuse_other_content() const {
  std::string begin(std::max<std::size_t>(header_.size(), 1), '\0');
  std::ifstream(path_, std::ios::binary)
      .read(begin.data(), static_cast<std::streamsize>(begin.size()));
  const bool ours = header_.empty() ? begin[0] == '{' : begin == header_;
  if (!ours)
    throw InputError(expectation("log",
                                 header_.empty() ? "a log of JSON lines in " + path_.string()
                                                 : "these columns in " + path_.string(),
                                 begin.substr(0, begin.find('\n')), "another file"));
}

void RotatingFile::append(std::string_view lines) {
  const Bytes more{static_cast<std::int64_t>(lines.size())};
  const bool full = is_file_ && options_.limit > Bytes{0} && size_ + more > options_.limit;
  const bool has_lines = size_ > Bytes{static_cast<std::int64_t>(header_.size())};
  if (full && has_lines) rotate();
  try {
    write_all(fd_, lines, path_);
  } catch (const WriteError&) {
    take_back_half_of(more);
    throw;
  }
  size_ += more;
}

void RotatingFile::take_back_half_of(Bytes lines) {
  struct stat now {};
  if (!is_file_ || ::fstat(fd_, &now) != 0) return;
  // If the file is longer than our own write could make it, another process writes to it too. Its
  // lines must not be cut.
  if (Bytes{now.st_size} >= size_ + lines) return;
  if (::ftruncate(fd_, size_.count) != 0) return;  // the disk refuses even this
}

void RotatingFile::rotate() {
  ::close(fd_);
  fd_ = -1;
  const auto numbered = [&](int n) { return path_.string() + "." + std::to_string(n); };
  for (int n = options_.keep - 1; n >= 1; --n)
    ::rename(numbered(n).c_str(), numbered(n + 1).c_str());  // fails if there is no such file yet
  if (options_.keep >= 1) {
    ::rename(path_.c_str(), numbered(1).c_str());
  } else {
    ::unlink(path_.c_str());
  }
  open();
}

}  // namespace headroom::watch
