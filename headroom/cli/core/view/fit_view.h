// The largest size that fits, as text, with all that were tried.
#pragma once

#include <string>

#include "headroom/answer/fit.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// `setting`: how a script is given the size, "--batch-size=12".
[[nodiscard]] std::string fit_text(const answer::Fit& fit, const Terminal& terminal,
                                   const std::string& setting = {});

// Prints the answer, and gives the command's exit code.
[[nodiscard]] ExitCode print_fit(const answer::Fit& fit, bool as_json,
                                 const std::string& setting = {});

}  // namespace headroom::cli
