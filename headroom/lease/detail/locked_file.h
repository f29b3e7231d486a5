// Files that live as long as somebody holds their write lock.
//
// The lock is one of the open file description (F_OFD_SETLK): children inherit it, and the kernel
// drops it when the last descriptor is closed, however its process ended. To ask for it needs no
// more than reading; to take it needs writing, which nobody but the file's owner may.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom::lease::detail {

// Begins the line that is added to a lease's file when it is ended from outside.
inline constexpr std::string_view kEndedBy = "ended by ";

// Whether somebody holds the write lock; where that is not told he does. False for what does not
// exist or may not be read.
[[nodiscard]] bool is_locked(int descriptor);
[[nodiscard]] bool is_locked(const std::filesystem::path& path);

// Makes `folder`/`name` with this content: nobody sees it before it is complete and locked. Returns
// its descriptor, closed on exec. Throws WriteError; nothing is left behind then.
[[nodiscard]] int make_locked_file(const std::filesystem::path& folder, const std::string& name,
                                   std::string_view content);

// Throws the WriteError for `error`, an errno.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error);

}  // namespace headroom::lease::detail
