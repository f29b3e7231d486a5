// Changes that were tried by running a program with them, as text.
#pragma once

#include <string>
#include <vector>

#include "headroom/cli/core/terminal.h"
#include "headroom/rehearse/advice.h"

namespace headroom::cli {

[[nodiscard]] std::string tried_text(const std::vector<rehearse::TriedAdvice>& advice,
                                     const Terminal& terminal);

}  // namespace headroom::cli
