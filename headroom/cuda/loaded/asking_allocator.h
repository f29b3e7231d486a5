// PyTorch's caching allocator, which calls a function before a request fails; if that has freed
// memory, the request is made again. Requests of a private pool, such as those of a graph that is
// captured, fail as before. Everything else is the allocator's own.
#pragma once

#include "headroom/cuda/cuda_functions.h"

namespace headroom::cuda {

// From now on `ask` is called; null: requests fail as they did before. Safe at any time, because
// all memory is that of the one allocator.
void ask_before_refusing(CudaFunctions::Ask ask);

}  // namespace headroom::cuda
