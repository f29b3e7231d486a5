// The state file of one path, kept current cheaply.
//
// refresh() costs one stat() while nothing changed. A file that is missing or half written leaves
// the last good state in force; one that is valid JSON but makes no sense does too and says so on
// stderr, since that is a mistake in a test. Not thread-safe: the owner holds a lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "state.h"

namespace fake_nvml {

class StateFile {
 public:
  /// An empty path stands for "no file": there is never a state.
  explicit StateFile(std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Reads the file if it changed since the last call; returns whether the state is a new one.
  bool refresh();

  /// The last good state; null while there was none.
  [[nodiscard]] const std::shared_ptr<const State>& state() const { return state_; }

 private:
  struct Stamp {
    ino_t inode = 0;
    std::int64_t modified_ns = -1;
    off_t size = -1;
    bool operator==(const Stamp&) const = default;
  };

  bool load();

  std::string path_;
  std::string text_;
  Stamp stamp_;
  // The clock of a file system ticks in milliseconds: a second change within one tick leaves the
  // stamp as it was. A file that was this young when read is therefore read again.
  bool was_young_ = false;
  std::shared_ptr<const State> state_;
};

}  // namespace fake_nvml
