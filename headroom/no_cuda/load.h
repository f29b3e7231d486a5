// From a process to its CUDA: the table of `cuda` where cards can be used, that of `no_cuda` where
// not.
//
//   const libtorch::CudaFunctions& cuda = cuda_functions();
//
// libheadroom.so is linked without CUDA, so that it runs anywhere. On a machine with an NVIDIA
// driver it brings LibTorch's CUDA part, libtorch_cuda.so, into the process as it is loaded itself,
// before main(): a program that links headroom::headroom sees the cards as one that links LibTorch
// with CUDA does, and starts as slowly (a second, and some 3 GB mapped). No card gets a context by
// it. Without a driver nothing happens. HEADROOM_CUDA=off keeps it out, and so does a program that
// defines `const bool headroom_without_cuda = true;` beside its main(), as headroom-engine does;
// such a program calls load_cuda() if it wants the cards all the same, before anything of LibTorch
// asks about CUDA: LibTorch looks for it once and remembers that there was none.
//
// Threads: all may be called from any.
#pragma once

#include <filesystem>

#include "headroom/libtorch/cuda_functions.h"

extern "C" {
extern const bool headroom_without_cuda;  // for programs to define, not to read
}

namespace headroom {

// What this process can use now. Never loads LibTorch's CUDA part; where that is there already,
// libheadroom_cuda.so, the neighbour of libheadroom.so, is loaded.
[[nodiscard]] const libtorch::CudaFunctions& cuda_functions();

// Brings LibTorch's CUDA part into the process first, where there is a driver for it.
const libtorch::CudaFunctions& load_cuda();

// The table from this file, for good, if it can be loaded; otherwise `no_cuda`'s, whose
// why_absent() says what was wrong. For cuda_functions(), load_cuda() and tests.
const libtorch::CudaFunctions& load_cuda_from(const std::filesystem::path& library);

}  // namespace headroom
