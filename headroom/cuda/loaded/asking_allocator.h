// PyTorch's caching allocator with one thing more: before a request fails, somebody is asked for
// memory, and the request is made again. Everything else is the allocator's own.
#pragma once

#include "headroom/cuda/cuda_functions.h"

namespace headroom::cuda {

// From now on `ask` is asked; null: nobody. Safe at any time: memory of before and after is the
// same allocator's.
void ask_before_refusing(CudaFunctions::Ask ask);

}  // namespace headroom::cuda
