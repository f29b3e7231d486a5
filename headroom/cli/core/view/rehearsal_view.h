// A rehearsal as text: the answer of an estimate, with the script's lines and what was not as in a
// real run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/rehearse/advice.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// `advice`: empty if it was not asked for.
[[nodiscard]] std::string rehearsal_text(const answer::Answer& answer, const rehearse::Rehearsal& rehearsal,
                                         const std::optional<std::vector<rehearse::TriedAdvice>>& advice,
                                         const Terminal& terminal);

// What the script wrote, and what it would have changed; empty: nothing.
[[nodiscard]] std::string files_text(const rehearse::Rehearsal& rehearsal, const Terminal& terminal);

}  // namespace headroom::cli
