// The values that an operator's results read as on a shape-only card, where its arguments are
// unknown (device/reads.h).
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

// True if the results of an operator, whose arguments are on the stack, may read as other values
// than zeros.
[[nodiscard]] bool may_read(const Call& call);
// After its plan, with the results on the stack: sets the values that they, and the arguments that
// it wrote into, read as.
void read_results(Call& call, std::vector<c10::IValue> arguments);

}  // namespace headroom::sim::detail
