// Where a job can go on: its newest checkpoint, and the arguments that name it.
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
// `~`) and was written since then; of equal times the highest number: step-1000 after step-999. A
// folder is as new as the newest file in it. What is empty, or by its name not complete (.tmp,
// .part, .incomplete, ~), does not count.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::string& pattern,
                                                                     WallTime since);

// "--resume {}" with the path for {}: words as a shell splits them; a path with blanks stays one.
// Throws UsageError for a template without {} or with a quote that has no end.
[[nodiscard]] std::vector<std::string> resume_arguments(const std::string& arguments,
                                                        const std::filesystem::path& checkpoint);

}  // namespace headroom::supervise
