// Reads the folder of leases, and adds to the file of grants.
#pragma once

#include <filesystem>

#include "headroom/lease/directory.h"

namespace headroom::lease::detail {

// Throws BusyError if this process cannot read a file (too many open files): a file that was not
// read must not count as absent.
[[nodiscard]] Contents read_folder(const std::filesystem::path& folder);

// Adds the grant to `own`, or to `other` if another user owns `own`. Drops grants that are not
// needed any more once the file is long. Throws WriteError.
void append_grant(const std::filesystem::path& own, const std::filesystem::path& other,
                  const Grant& grant, const Contents& now);

}  // namespace headroom::lease::detail
