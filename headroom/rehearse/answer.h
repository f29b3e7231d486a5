// The answer of a rehearsal, and the document of `headroom rehearse --json`.
#pragma once

#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/rehearse/advice.h"

namespace headroom::rehearse {

// Adds sentences about the rehearsal as a whole.
void add_notes(Rehearsal& rehearsal, const std::vector<gpu::SimulatedCard>& cards);

// `failed`: the script failed, and there is no verdict.
[[nodiscard]] answer::Answer answer_of(const Orders& orders, const Rehearsal& rehearsal,
                                       bool failed);

// Without `advice`, its lists are empty. The command adds the exit code.
[[nodiscard]] Json to_json(const answer::Answer& answer, const Rehearsal& rehearsal,
                           const std::vector<TriedAdvice>& advice);

}  // namespace headroom::rehearse
