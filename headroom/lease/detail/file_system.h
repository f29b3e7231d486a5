// File systems that carry leases: local ones, whose locks (F_OFD_SETLK, flock) are visible to all
// processes of this machine and to no other machine. Unknown ones are refused.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::lease::detail {

// By the number of the kind (statfs(2), f_type).
[[nodiscard]] bool carries_leases(long long kind);

// "NFS", or "a file system of the unknown kind 0x1234".
[[nodiscard]] std::string file_system_name(long long kind);

// True if the folder is, or would be, on a file system that carries leases.
[[nodiscard]] bool is_local(const std::filesystem::path& folder);

// Throws UnavailableError for a folder on any other file system, or if that cannot be found out.
void require_local_file_system(const std::filesystem::path& folder);

}  // namespace headroom::lease::detail
