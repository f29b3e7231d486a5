#include "headroom/memory/detail/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "headroom/base/error.h"
#include "headroom/base/file.h"

namespace headroom::memory::detail {
namespace {

Descriptor unnamed_file(const std::filesystem::path& folder) {
  std::string name = folder / "headroom-offload-XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) throw WriteError("Offload", write_failure(folder, errno));
  ::unlink(name.c_str());
  return Descriptor(file);
}

}  // namespace

BlockFile::BlockFile(const std::filesystem::path& folder)
    : folder_(folder), file_(unnamed_file(folder)) {}

BlockFile::Block BlockFile::keep(std::span<const char> bytes) {
  const Block block = take(static_cast<std::int64_t>(bytes.size()));
  std::int64_t at = block.at;
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written < 0 ? errno : ENOSPC;
      forget(block);
      throw WriteError("Offload", write_failure(folder_, error));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    at += written;
  }
  return block;
}

void BlockFile::read(const Block& block, std::span<char> bytes) const {
  std::int64_t at = block.at;
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), bytes.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw InputError("Offload", "cannot read back what was written in " + folder_.string() +
                                      ": " + (got < 0 ? std::strerror(errno) : "it is shorter"));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    at += got;
  }
}

// The first gap that is long enough, or the end.
BlockFile::Block BlockFile::take(std::int64_t size) {
  const std::lock_guard lock(mutex_);
  const auto gap =
      std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.second >= size; });
  if (gap == free_.end()) {
    end_ += size;
    return {end_ - size, size};
  }
  const auto [at, length] = *gap;
  free_.erase(gap);
  if (length > size) free_[at + size] = length - size;
  return {at, size};
}

void BlockFile::forget(const Block& block) {
  const std::lock_guard lock(mutex_);
  auto here = free_.emplace(block.at, block.size).first;
  if (const auto next = std::next(here);
      next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here != free_.begin())
    if (const auto before = std::prev(here); before->first + before->second == here->first) {
      before->second += here->second;
      free_.erase(here);
      here = before;
    }
  if (here->first + here->second == end_) {
    end_ = here->first;
    free_.erase(here);
  }
}

}  // namespace headroom::memory::detail
