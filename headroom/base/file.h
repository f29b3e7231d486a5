// Files: read whole, or written so that a reader sees the old content or the new, never half.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

// The whole file, or nothing if it does not exist or may not be read. Works for /proc as well,
// where sizes are reported as 0.
[[nodiscard]] std::optional<std::string> read_file(const std::filesystem::path& path);

// As above for input that somebody named: throws InputError with the path and the system's reason.
[[nodiscard]] std::string read_input(const std::filesystem::path& path);

// Writes next to the target, flushes to the disk, renames over it. Permissions of an existing file
// are kept, and links to it; a pipe or device is written into. On failure the target is untouched,
// nothing is left behind, and WriteError is thrown.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes all of it to an open descriptor. Throws WriteError naming `path` and the system's reason.
void write_all(int descriptor, std::string_view content, const std::filesystem::path& path);

// Where Headroom keeps what it must remember between commands: HEADROOM_STATE_DIR, else
// $XDG_STATE_HOME/headroom, else ~/.local/state/headroom. Not created by asking.
[[nodiscard]] std::filesystem::path state_dir();

// An environment variable; nothing if it is unset (set to "" is a value).
[[nodiscard]] std::optional<std::string> environment(const char* name);

}  // namespace headroom
