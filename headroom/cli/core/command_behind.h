// The command line of another program behind the options of one of ours.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace headroom::cli {

// All words from the first one that is not an option of `command`, with or without "--" before it.
// Throws UsageError, with the example, if there are none, and for an unknown option.
[[nodiscard]] std::vector<std::string> command_behind(const CLI::App& command,
                                                      const std::vector<std::string>& behind_dashes,
                                                      const std::string& example);

}  // namespace headroom::cli
