// Which file systems cannot carry leases: those whose locks other machines see, or do not see.
#pragma once

#include <optional>
#include <string>

namespace headroom::lease::detail {

// The name of the network file system with this number (statfs(2), f_type); nothing for a local
// one. FUSE counts as one, for what is behind it cannot be told.
[[nodiscard]] std::optional<std::string> network_file_system(long long magic);

}  // namespace headroom::lease::detail
