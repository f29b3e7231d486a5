#include "headroom/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"
#include "headroom/base/output_file.h"

namespace headroom {
namespace {

bool try_write(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::optional<std::string> read_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return {};
  std::string content;
  std::array<char, 8192> buffer;  // NOLINT: filled by read before use
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
  throw InputError("read_file", "cannot read " + path.string() + ": " + std::strerror(errno));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

void write_all(int descriptor, std::string_view content, const std::filesystem::path& path) {
  if (!try_write(descriptor, content)) throw WriteError("write_file", write_failure(path, errno));
}

std::string write_failure(const std::filesystem::path& path, int error) {
  return "cannot write " + path.string() + ": " + std::strerror(error) +
         (error == ENOSPC ? "; free some space" : "");
}

std::optional<std::string> environment(const char* name) {
  const char* value =
      std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no code sets variables while threads run
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
