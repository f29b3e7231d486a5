// Removes files that dead processes left behind.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/base/process.h"

namespace headroom::machine {

struct Leftovers {
  Bytes returned{0};
  std::vector<std::string> done;  // one line for each removed file
};

// Removes Headroom's own half-written files of dead processes, and this user's lease and waiter
// files that no process holds. With `search_harder` it also removes those of all users, as far as
// permissions allow (root), and shared memory that PyTorch's data loaders of this user left in
// /dev/shm: its maker is gone and no process has it mapped. It keeps shared memory if some
// processes are invisible: in a container, /dev/shm may be the host's.
[[nodiscard]] Leftovers remove_leftovers(const ProcessTable& processes, bool search_harder,
                                         const std::filesystem::path& shared_memory = "/dev/shm");

}  // namespace headroom::machine
