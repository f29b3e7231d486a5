#include "headroom/trace/detail/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::trace::detail {
namespace {

constexpr std::size_t kInMemory = std::size_t{1} << 20;

}  // namespace

Spool::Spool(std::filesystem::path beside) : beside_(std::move(beside)) {}

Spool::~Spool() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Spool::fail(int error) const {
  throw WriteError("write_file", "cannot write beside " + beside_.string() + ": " +
                                     std::strerror(error) +
                                     (error == ENOSPC ? "; free some space" : ""));
}

void Spool::settle() {
  if (bytes_.size() >= kInMemory) flush();
}

void Spool::flush() {
  if (descriptor_ < 0) {
    std::string name = beside_.string() + ".XXXXXX.tmp";
    descriptor_ = ::mkostemps(name.data(), 4, O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    ::unlink(name.c_str());
  }
  write_all(descriptor_, bytes_, beside_);
  bytes_.clear();
}

void Spool::copy_to(OutputFile& file) {
  if (descriptor_ >= 0) {
    flush();
    if (::lseek(descriptor_, 0, SEEK_SET) != 0) fail(errno);
    std::string part(kInMemory, '\0');
    while (const ssize_t got = ::read(descriptor_, part.data(), part.size())) {
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(errno);
      file.write(std::string_view(part).substr(0, static_cast<std::size_t>(got)));
    }
  }
  file.write(bytes_);
}

}  // namespace headroom::trace::detail
