// Which file systems carry leases: those of this machine, whose locks (F_OFD_SETLK, flock) all its
// processes see, and no other machine's. Any that is not known to be one is refused.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::lease::detail {

// By the number of the kind (statfs(2), f_type).
[[nodiscard]] bool carries_leases(long long kind);

// "NFS", or "a file system of the unknown kind 0x1234".
[[nodiscard]] std::string file_system_name(long long kind);

// Whether a folder there would be on one that does.
[[nodiscard]] bool is_local(const std::filesystem::path& folder);

// Throws UnavailableError for a folder on one that carries none, or that cannot be asked.
void require_local_file_system(const std::filesystem::path& folder);

}  // namespace headroom::lease::detail
