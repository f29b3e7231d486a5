// The table of CUDA functions for a process without CUDA.
#pragma once

#include <string>

#include "headroom/cuda/cuda_functions.h"

namespace headroom::no_cuda {

[[nodiscard]] const CudaFunctions& functions();

// Sets the reason that why_absent() and later exceptions give.
void set_reason(const std::string& sentence);

}  // namespace headroom::no_cuda
