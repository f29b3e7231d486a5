// The largest batch of a training script that fits its cards, by at most six rehearsals.
#pragma once

#include "headroom/answer/fit.h"
#include "headroom/edit/knobs.h"
#include "headroom/rehearse/rehearsal.h"

namespace headroom::rehearse {

// `knobs` say where the command sets its batch, from which the search begins. Throws UsageError if
// they map no batch or change a file, and UnavailableError for a script that fails.
[[nodiscard]] answer::Fit find_largest_batch(const Orders& orders, const edit::Knobs& knobs);

}  // namespace headroom::rehearse
