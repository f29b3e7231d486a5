// A rehearsal as text: the answer of an estimate, with the script's lines and what was not as in a
// real run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/rehearsal.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// `advice`: empty if it was not asked for.
[[nodiscard]] std::string rehearsal_text(const Answer& answer, const Rehearsal& rehearsal,
                                         const std::optional<std::vector<TriedAdvice>>& advice,
                                         const Terminal& terminal);

}  // namespace headroom::cli
