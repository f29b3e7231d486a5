#include "headroom/data/detail/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "headroom/base/descriptor.h"
#include "headroom/base/error.h"

namespace headroom::data::detail {
namespace {

[[noreturn]] void cannot_map(const std::filesystem::path& path, int error) {
  throw InputError("read_file", "cannot read " + path.string() + ": " + std::strerror(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat state {};
  if (!file.is_open() || ::fstat(file.get(), &state) != 0) cannot_map(path, errno);
  if (S_ISDIR(state.st_mode)) cannot_map(path, EISDIR);
  const auto size = static_cast<std::size_t>(state.st_size);
  if (size == 0) return;  // which mmap refuses
  void* const begin = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (begin == MAP_FAILED) cannot_map(path, errno);  // NOLINT: the system's own constant
  bytes_ = {static_cast<const char*>(begin), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());  // NOLINT
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace headroom::data::detail
