// A step that does not use the card it is run for: the model was made somewhere else, and a report
// of no bytes would look like an answer.
#pragma once

#include <functional>

#include "headroom/dryrun/dry_run.h"
#include "headroom/sim/card.h"

namespace headroom::dryrun {

// Runs the step once more, to see, and throws UsageError with the tensors that it met instead, by
// name where the subject has one.
[[noreturn]] void refuse_step_elsewhere(const char* function, const sim::Card& card,
                                        const Subject& subject);

}  // namespace headroom::dryrun
