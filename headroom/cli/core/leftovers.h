// What dead processes left behind and nobody can use any more.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/process.h"

namespace headroom::cli {

struct Leftovers {
  Bytes returned{0};
  std::vector<std::string> done;  // one line for each thing removed
};

// Removes Headroom's own half-written files of processes that are gone, and this user's files of
// leases and waiters that nobody holds any more; with `search_harder` those of all users, as far as
// that is allowed (root). With `search_harder` also
// shared memory that PyTorch's data loaders of this user left in /dev/shm: the process that made it
// is gone and no process has it mapped. It stays where not all processes can be seen: in a
// container, whose /dev/shm may be the machine's.
[[nodiscard]] Leftovers remove_leftovers(const ProcessTable& processes, bool search_harder,
                                         const std::filesystem::path& shared_memory = "/dev/shm");

}  // namespace headroom::cli
