// Files: read whole, or replaced so that a reader sees the old content or the new, never half.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace headroom {

// The whole file, or std::nullopt if it does not exist or cannot be read. Also works for /proc,
// where the reported size is 0.
[[nodiscard]] std::optional<std::string> read_file(const std::filesystem::path& path);

// As above, for input that the user named: throws InputError with the path and the system's reason.
[[nodiscard]] std::string read_input(const std::filesystem::path& path);

// Writes a temporary file next to the target, flushes it to the disk and renames it over the
// target. An existing file keeps its permissions, and symbolic links to it stay; a pipe or device
// is written directly. On failure it removes the temporary file, leaves the target untouched and
// throws WriteError.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Writes all of `content` to an open descriptor. Throws WriteError with `path` and the system's
// reason.
void write_all(int descriptor, std::string_view content, const std::filesystem::path& path);

// "cannot write PATH: No space left on device; free some space", for an errno.
[[nodiscard]] std::string write_failure(const std::filesystem::path& path, int error);

// The folder for state that outlives a command: HEADROOM_STATE_DIR, else $XDG_STATE_HOME/headroom,
// else ~/.local/state/headroom. This function does not create it.
[[nodiscard]] std::filesystem::path state_dir();

// An environment variable; std::nullopt if it is unset ("" is a value).
[[nodiscard]] std::optional<std::string> environment(const char* name);

}  // namespace headroom
