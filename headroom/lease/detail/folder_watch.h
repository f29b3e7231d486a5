// Wakes a waiter when something in the folder of leases changes that could give him his turn: a
// lease or a waiter's place that ends, however its process ended, or somebody new in the line.
#pragma once

#include <filesystem>
#include <stop_token>

#include "headroom/base/descriptor.h"
#include "headroom/base/time.h"

namespace headroom::lease::detail {

class FolderWatch {
 public:
  // Where the system gives no watch (there is a limit a user), it wakes ten times a second.
  explicit FolderWatch(const std::filesystem::path& folder);

  // True as soon as there was a change since the last call; false after `longest` or when
  // cancelled.
  bool wait(Seconds longest, const std::stop_token& cancel);

 private:
  bool read_changes();

  Descriptor changes_;  // closed where the system gives no watch
  Descriptor cancelled_;
};

}  // namespace headroom::lease::detail
