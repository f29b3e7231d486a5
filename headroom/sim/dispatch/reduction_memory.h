// What a sum, a mean or a norm takes on CUDA beside its result (gpu/reduction.h).
#pragma once

#include "headroom/gpu/reduction.h"
#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

// Before the results take the arguments' place.
[[nodiscard]] gpu::ReductionMemory reduction_memory(const Call& call);

// Taken once the result is there, and given back.
void reduce_through(const gpu::ReductionMemory& memory, const Call& call);

}  // namespace headroom::sim::detail
