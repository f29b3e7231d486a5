// Files that count as long as a process holds their write lock.
//
// The lock belongs to the open file description (F_OFD_SETLK): children inherit it, and the kernel
// drops it when the last descriptor closes, however its process ended. Testing it needs read
// permission; taking it needs write permission, which only the file's owner has.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom::lease::detail {

// Begins the line that end_lease() adds to a lease's file.
inline constexpr std::string_view kEndedBy = "ended by ";

// True if a process holds the write lock, or if that is unknown. False for a file that does not
// exist or cannot be read.
[[nodiscard]] bool is_locked(int descriptor);
[[nodiscard]] bool is_locked(const std::filesystem::path& path);

// Makes `folder`/`name` with this content, invisible until it is complete and locked. Returns its
// descriptor, with O_CLOEXEC. Throws WriteError and then leaves no file. `may_replace`: takes the
// place of a file with this name, which must be the caller's own.
[[nodiscard]] int make_locked_file(const std::filesystem::path& folder, const std::string& name,
                                   std::string_view content, bool may_replace = false);

// Throws the WriteError for `error`, an errno.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error);

}  // namespace headroom::lease::detail
