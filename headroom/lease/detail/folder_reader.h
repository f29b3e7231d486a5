// Reads the folder of leases as it is, and keeps the file of grants.
#pragma once

#include <filesystem>

#include "headroom/lease/directory.h"

namespace headroom::lease::detail {

// Throws BusyError where a file cannot be looked at for reasons of this process (too many open
// files): what was not seen must not count as absent.
[[nodiscard]] Contents read_folder(const std::filesystem::path& folder);

// Adds the grant to `own`, or to `other` where `own` is somebody else's, and drops what nobody
// needs to know any more once the file has become long. Throws WriteError.
void append_grant(const std::filesystem::path& own, const std::filesystem::path& other,
                  const Grant& grant, const Contents& now);

}  // namespace headroom::lease::detail
