// Finds a job's newest checkpoint, and makes the arguments that name it.
//
//   if (auto path = newest_checkpoint("out/ckpt-*.pt", try_started))
//     add(resume_arguments("--resume {}", *path));
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/time.h"

namespace headroom::supervise {

// The newest file or folder that matches the shell pattern (`*`, `?`, `[..]`, `{a,b}`, a leading
// `~`) and was written after `since`. Equal times go to the highest number: step-1000 after
// step-999. A folder is as new as its newest file. Empty files and incomplete names (.tmp, .part,
// .incomplete, ~) do not count.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::string& pattern,
                                                                     WallTime since);

// "--resume {}" with the path in place of {}, split into words as a shell does; a path with blanks
// stays one word. Throws UsageError for a template without {} or with an open quote.
[[nodiscard]] std::vector<std::string> resume_arguments(const std::string& arguments,
                                                        const std::filesystem::path& checkpoint);

}  // namespace headroom::supervise
