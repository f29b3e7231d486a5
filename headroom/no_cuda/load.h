// From a process to its CUDA: the table of `cuda` where cards can be used, that of `no_cuda` where
// not.
//
//   const libtorch::CudaFunctions& cuda = cuda_functions();
//
// libheadroom.so is linked without CUDA, so that it runs anywhere. A program that links or has
// loaded libtorch_cuda.so itself (Python's torch does) need do nothing. One that does not, and
// wants the cards, calls load_cuda() before anything else of LibTorch asks about CUDA: LibTorch
// looks for it once and remembers that there was none.
//
// Threads: all may be called from any.
#pragma once

#include <filesystem>

#include "headroom/libtorch/cuda_functions.h"

namespace headroom {

// What this process can use now. Never loads LibTorch's CUDA part (a second, and some 3 GB mapped);
// where that is there already, libheadroom_cuda.so, the neighbour of libheadroom.so, is loaded.
[[nodiscard]] const libtorch::CudaFunctions& cuda_functions();

// Brings LibTorch's CUDA part into the process first, where there is a driver for it.
const libtorch::CudaFunctions& load_cuda();

// The table from this file, for good, if it can be loaded; otherwise `no_cuda`'s, whose
// why_absent() says what was wrong. For cuda_functions(), load_cuda() and tests.
const libtorch::CudaFunctions& load_cuda_from(const std::filesystem::path& library);

}  // namespace headroom
