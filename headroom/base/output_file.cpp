#include "headroom/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom {
namespace {

constexpr std::size_t kBuffer = std::size_t{256} << 10;

// Resolves symbolic links, so that a commit replaces the file and keeps the link.
std::filesystem::path behind_links(const std::filesystem::path& path) {
  std::error_code error;
  auto target = std::filesystem::canonical(path, error);
  return error ? path : target;
}

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.string() + "." + std::to_string(::getpid()) + "-" + std::to_string(counter++) +
         ".tmp";
}

// Creates a new file. The name can be guessed, and a link planted under it would redirect the
// write: O_EXCL leaves an existing name alone, and the loop tries the next one.
int make_temporary(std::filesystem::path& name, const std::filesystem::path& beside) {
  constexpr int kTries = 1000;
  int descriptor = -1;
  for (int i = 0; i < kTries && descriptor < 0; ++i) {
    name = temporary_beside(beside);
    descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  return descriptor;
}

// The folder holds the rename; without this flush a power cut may lose it.
void flush_folder_of(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& named) : path_(behind_links(named)) {
  struct stat existing {};
  const bool exists = ::stat(path_.c_str(), &existing) == 0;
  // Renaming over /dev/stdout or a pipe would replace it with a regular file.
  const bool is_device = exists && !S_ISREG(existing.st_mode) && !S_ISDIR(existing.st_mode);
  descriptor_ =
      is_device ? ::open(path_.c_str(), O_WRONLY | O_CLOEXEC) : make_temporary(temporary_, path_);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();  // not ours to remove
    fail(error);
  }
  if (exists && !is_device && ::fchmod(descriptor_, existing.st_mode & 07777) != 0) fail(errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error) {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) ::unlink(std::exchange(temporary_, {}).c_str());
  throw WriteError("write_file", write_failure(path_, error));
}

void OutputFile::write(std::string_view content) {
  if (descriptor_ < 0)
    throw InternalError(expectation("write_file", "a file that is open", path_.string()));
  buffer_ += content;
  if (buffer_.size() >= kBuffer) flush();
}

void OutputFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(errno);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail(errno);
}

void OutputFile::commit() {
  sync();
  if (temporary_.empty()) {
    ::close(std::exchange(descriptor_, -1));
    return;
  }
  // Closing reports errors of delayed writes (NFS, quotas).
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
  flush_folder_of(path_);
}

}  // namespace headroom
