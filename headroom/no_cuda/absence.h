// The table of CUDA functions for a process that has none.
#pragma once

#include <string>

#include "headroom/libtorch/cuda_functions.h"

namespace headroom::no_cuda {

[[nodiscard]] const libtorch::CudaFunctions& functions();

// The sentence that why_absent() and every exception from here on gives.
void set_reason(const std::string& sentence);

}  // namespace headroom::no_cuda
