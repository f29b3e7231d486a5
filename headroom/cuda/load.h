// Finds the CUDA functions of a process: the table of `cuda` if cards can be used, else that of
// `no_cuda`.
//
//   const CudaFunctions& cuda = cuda_functions();
//
// libheadroom.so is linked without CUDA, so that it runs anywhere. On a machine with an NVIDIA
// driver it loads LibTorch's CUDA part, libtorch_cuda.so, when it is loaded itself, before main().
// A program that links headroom::headroom then sees the cards like one that links LibTorch with
// CUDA, and starts as slowly (a second, and some 3 GB mapped). Loading creates no context on a
// card. Without a driver nothing is loaded.
//
// HEADROOM_CUDA=off prevents the loading. So does a program that defines
// `const bool headroom_without_cuda = true;` beside its main(), as headroom-engine does. If such a
// program needs the cards after all, it calls load_cuda() before any call into LibTorch asks for
// CUDA: LibTorch looks for CUDA once and remembers the result.
//
// Threads: all functions may be called from any thread.
#pragma once

#include <filesystem>

#include "headroom/cuda/cuda_functions.h"

extern "C" {
extern const bool headroom_without_cuda;  // for programs to define, not to read
}

namespace headroom {

// The functions of this process now. Never loads LibTorch's CUDA part; if that is already loaded,
// loads libheadroom_cuda.so from the folder of libheadroom.so.
[[nodiscard]] const CudaFunctions& cuda_functions();

// Loads LibTorch's CUDA part first, if there is a driver for it.
const CudaFunctions& load_cuda();

// Loads the table from this file and keeps it for good; if that fails, returns `no_cuda`'s, whose
// why_absent() gives the reason. For cuda_functions(), load_cuda() and tests.
const CudaFunctions& load_cuda_from(const std::filesystem::path& library);

}  // namespace headroom
