// Files that are written at the end of long work: checked before it, and named after it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

// Throws WriteError if the folder of one of `files` does not exist, or one is a folder itself, and
// UsageError for standard output, for a file that is there twice, and for one of those `read`.
// Empty names are not files. `where` is the command, for the message.
void check_outputs(std::string_view where, const std::vector<std::string>& files,
                   const std::vector<std::string>& read = {});
// "headroom WHERE: a.html written" on standard error, for each.
void tell_of_outputs(std::string_view where, const std::vector<std::string>& files);

}  // namespace headroom::cli
