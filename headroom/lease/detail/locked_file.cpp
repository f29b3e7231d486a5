#include "headroom/lease/detail/locked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

#include "headroom/base/error.h"
#include "headroom/base/file.h"
#include "headroom/lease/detail/point.h"

namespace headroom::lease::detail {
namespace {

namespace fs = std::filesystem;

struct flock whole_file(short kind) {
  struct flock range {};
  range.l_type = kind;
  range.l_whence = SEEK_SET;
  return range;
}

struct Temporary {
  fs::path path;
  int file = -1;
};

// "NAME.<pid>-<n>.tmp": without a lock it is dead. An existing one is from a dead process with the
// same number, because each container counts from 1.
Temporary make_temporary(const fs::path& folder, const std::string& name) {
  static std::atomic<unsigned> made{0};
  constexpr int kMost = 100;
  for (int tries = 1;; ++tries) {
    const fs::path path =
        folder / (name + "." + std::to_string(::getpid()) + "-" + std::to_string(made++) + ".tmp");
    // Unreadable for others until it is locked: a reader's lock would block ours.
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) return {path, file};
    if (errno != EEXIST || tries == kMost) throw_write_error(folder / name, errno);
  }
}

// Never replaces a file: a repeated identifier must not end a lease.
bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  return ::link(from.c_str(), to.c_str()) == 0 && ::unlink(from.c_str()) == 0;
}

}  // namespace

void throw_write_error(const fs::path& path, int error) {
  throw WriteError("lease", write_failure(path, error));
}

bool is_locked(int descriptor) {
  // Tests for a read lock, which only a write lock blocks, and only the owner can hold that.
  struct flock range = whole_file(F_RDLCK);
  return ::fcntl(descriptor, F_OFD_GETLK, &range) != 0 || range.l_type == F_WRLCK;
}

bool is_locked(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool locked = is_locked(file);
  ::close(file);
  return locked;
}

int make_locked_file(const fs::path& folder, const std::string& name, std::string_view content,
                     bool may_replace) {
  const fs::path path = folder / name;
  const auto [temporary, file] = make_temporary(folder, name);
  pass(Point::file_made);
  try {
    struct flock range = whole_file(F_WRLCK);
    if (::fcntl(file, F_OFD_SETLK, &range) != 0) throw_write_error(path, errno);
    pass(Point::file_locked);
    write_all(file, content, path);
    pass(Point::file_written);
    if (::fchmod(file, 0644) != 0) throw_write_error(path, errno);
    const bool has_its_name = may_replace ? ::rename(temporary.c_str(), path.c_str()) == 0
                                          : rename_to_new(temporary, path);
    if (!has_its_name) throw_write_error(path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    ::close(file);
    throw;
  }
  return file;
}

}  // namespace headroom::lease::detail
