// How a command that fails ends: a sentence on standard error and the exit code for it.
#pragma once

#include <functional>
#include <string>

#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

// "headroom: what", and the code.
ExitCode complain(const std::string& what, ExitCode code);

// Runs the command; what it throws becomes a complaint.
[[nodiscard]] ExitCode complaining(const std::function<ExitCode()>& command);

}  // namespace headroom::cli
