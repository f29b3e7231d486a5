// Refuses a step that does not use its card: the model is on another device, and a report of 0
// bytes would look like an answer.
#pragma once

#include "headroom/dryrun/subject.h"
#include "headroom/sim/card.h"

namespace headroom::dryrun {

// Runs the step again to record its tensors, then throws UsageError that lists them, by name if the
// subject names them.
[[noreturn]] void refuse_step_elsewhere(const char* function, const sim::Card& card,
                                        const Subject& subject);

}  // namespace headroom::dryrun
