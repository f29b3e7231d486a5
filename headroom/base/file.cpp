#include "headroom/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "headroom/base/error.h"

namespace headroom {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  // Closing reports errors of delayed writes (NFS, quotas), so it is a step of its own.
  [[nodiscard]] bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool try_write(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw WriteError("[write_file] cannot write " + path.string() + ": " + std::strerror(error) +
                   (error == ENOSPC ? "; free some space" : ""));
}

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// A link stays as it is: the file it points to is the one that is replaced.
std::filesystem::path behind_links(const std::filesystem::path& path) {
  std::error_code error;
  auto target = std::filesystem::canonical(path, error);
  return error ? path : target;
}

// Renaming over /dev/stdout or a pipe would put a file in its place.
void write_into_device(const std::filesystem::path& path, std::string_view content) {
  const Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (device.get() < 0 || !try_write(device.get(), content)) fail(path, errno);
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return {};
  std::string content;
  std::array<char, 8192> buffer;  // NOLINT: filled by read before it is looked at
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {};
    if (got == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::string read_input(const std::filesystem::path& path) {
  errno = 0;
  if (auto content = read_file(path)) return *std::move(content);
  throw InputError("[read_file] cannot read " + path.string() + ": " + std::strerror(errno));
}

void write_file_atomically(const std::filesystem::path& named, std::string_view content) {
  static std::atomic<unsigned> counter{0};
  const std::filesystem::path path = behind_links(named);
  struct stat existing {};
  const bool exists = ::stat(path.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode) && !S_ISDIR(existing.st_mode))
    return write_into_device(path, content);
  const std::string temporary =
      path.string() + "." + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) fail(path, errno);
  const auto check = [&](bool worked) {
    if (worked) return;
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, error);
  };
  if (exists) check(::fchmod(file.get(), existing.st_mode & 07777) == 0);
  check(try_write(file.get(), content));
  check(::fsync(file.get()) == 0);
  check(file.close());
  check(::rename(temporary.c_str(), path.c_str()) == 0);
  // The rename itself lives in the folder; without this it may be lost by a power cut.
  const Descriptor folder(::open(parent_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
}

void write_all(int descriptor, std::string_view content, const std::filesystem::path& path) {
  if (!try_write(descriptor, content)) fail(path, errno);
}

std::optional<std::string> environment(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): we never set while threads run
  if (value == nullptr) return {};
  return value;
}

std::filesystem::path state_dir() {
  if (const auto own = environment("HEADROOM_STATE_DIR"); own && !own->empty()) return *own;
  if (const auto xdg = environment("XDG_STATE_HOME"); xdg && !xdg->empty())
    return std::filesystem::path(*xdg) / "headroom";
  return std::filesystem::path(environment("HOME").value_or("/tmp")) / ".local/state/headroom";
}

}  // namespace headroom
