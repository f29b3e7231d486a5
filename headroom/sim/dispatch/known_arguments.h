// Operators of a shape-only card whose results follow from known values (device/known.h): the CPU's
// kernel then computes them, as in compute mode.
#pragma once

#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

// True if the operator's known arguments are enough for the CPU's kernel to compute its results.
[[nodiscard]] bool knows_arguments(Call& call);
// Before it runs: gives memory to the arguments that it overwrites.
void prepare_overwritten(const Call& call);
// After a run without values: the arguments that it wrote into are unknown. `still_read`: until
// read_results (read_results.h) they read as their old values.
void forget_written(const Call& call, bool still_read);
// True if the results, too, are few enough to be known.
[[nodiscard]] bool has_knowable_results(const Call& call);

}  // namespace headroom::sim::detail
