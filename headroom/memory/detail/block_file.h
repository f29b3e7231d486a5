// A file without a name that keeps blocks of bytes and ends with its owner. The space of forgotten
// blocks is used again.
//
//   BlockFile file("/scratch");
//   const BlockFile::Block block = file.keep(bytes);
//   file.read(block, bytes);
//   file.forget(block);
//
// Threads: call everything from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>

#include "headroom/base/descriptor.h"

namespace headroom::memory::detail {

class BlockFile {
 public:
  struct Block {
    std::int64_t at = 0, size = 0;
  };

  // Throws WriteError if no file can be made in `folder`.
  explicit BlockFile(const std::filesystem::path& folder);

  // Throws WriteError, on a full disk for one; the space of the block is free again then.
  [[nodiscard]] Block keep(std::span<const char> bytes);
  // Throws InputError.
  void read(const Block& block, std::span<char> bytes) const;
  void forget(const Block& block);

 private:
  Block take(std::int64_t size);

  const std::filesystem::path folder_;
  const Descriptor file_;
  std::mutex mutex_;                           // guards what follows
  std::map<std::int64_t, std::int64_t> free_;  // gaps: where, how long
  std::int64_t end_ = 0;
};

}  // namespace headroom::memory::detail
