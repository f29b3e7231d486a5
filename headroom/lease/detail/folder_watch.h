// Wakes a waiter when a change in the folder of leases could let it go on: a lease or a place in
// the line that ends, however its process ended, or a new waiter.
#pragma once

#include <filesystem>
#include <stop_token>

#include "headroom/base/descriptor.h"
#include "headroom/base/time.h"

namespace headroom::lease::detail {

class FolderWatch {
 public:
  // If the system gives no watch (each user has a limit), it wakes ten times a second.
  explicit FolderWatch(const std::filesystem::path& folder);

  // True at the first change since the last call; false after `longest` or when cancelled.
  bool wait(Seconds longest, const std::stop_token& cancel);

 private:
  bool read_changes();

  Descriptor changes_;  // closed where the system gives no watch
  Descriptor cancelled_;
};

}  // namespace headroom::lease::detail
