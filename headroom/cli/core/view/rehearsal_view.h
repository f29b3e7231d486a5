// A rehearsal as text: the answer of an estimate, with the script's lines and its differences from
// a real run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/rehearse/advice.h"
#include "headroom/rehearse/floor.h"

namespace headroom::cli {

// `advice` and `floor` are std::nullopt if they were not asked for.
[[nodiscard]] std::string rehearsal_text(
    const answer::Answer& answer, const rehearse::Rehearsal& rehearsal,
    const std::optional<std::vector<rehearse::TriedAdvice>>& advice,
    const std::optional<rehearse::Floor>& floor, const Terminal& terminal);

// The files that the script wrote, and those that it would have changed; "" if there are none.
[[nodiscard]] std::string files_text(const rehearse::Rehearsal& rehearsal,
                                     const Terminal& terminal);

}  // namespace headroom::cli
