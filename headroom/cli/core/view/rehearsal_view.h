// A rehearsal as text: the answer of an estimate, with the script's lines and what was not as in a
// real run.
#pragma once

#include <string>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/rehearsal.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

[[nodiscard]] std::string rehearsal_text(const Answer& answer, const Rehearsal& rehearsal,
                                         const Terminal& terminal);

}  // namespace headroom::cli
