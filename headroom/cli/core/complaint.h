// Turns a command's failure into one sentence on standard error and an exit code.
#pragma once

#include <functional>
#include <string>

#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

// Prints "headroom: what" and returns the code.
ExitCode complain(const std::string& what, ExitCode code);

// Runs the command; an exception becomes a complaint.
[[nodiscard]] ExitCode complaining(const std::function<ExitCode()>& command);

}  // namespace headroom::cli
