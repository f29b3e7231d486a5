// A rehearsal as text: the answer of an estimate, with the script's lines and what was not as in a
// real run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/rehearsal_advice.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// `advice`: empty if it was not asked for.
[[nodiscard]] std::string rehearsal_text(const Answer& answer, const Rehearsal& rehearsal,
                                         const std::optional<std::vector<TriedAdvice>>& advice,
                                         const Terminal& terminal);

// What the script wrote, and what it would have changed; empty: nothing.
[[nodiscard]] std::string files_text(const Rehearsal& rehearsal, const Terminal& terminal);

}  // namespace headroom::cli
