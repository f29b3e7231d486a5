// The memory that a sum, a mean or a norm takes on CUDA beside its result (gpu/reduction.h).
#pragma once

#include "headroom/gpu/reduction.h"
#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

// Call it before the results replace the arguments.
[[nodiscard]] gpu::ReductionMemory reduction_memory(const Call& call);

// Allocates it once the results exist, and frees it.
void reduce_through(const gpu::ReductionMemory& memory, const Call& call);

}  // namespace headroom::sim::detail
