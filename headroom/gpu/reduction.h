// The temporary memory of PyTorch's CUDA kernel for sums, means and norms. For few results of many
// elements each (the gradient of a bias, summed over all tokens), several thread blocks share a
// result and exchange partial results through global memory.
//
// Source: aten/src/ATen/native/cuda/Reduce.cuh of PyTorch 2.11, setReduceConfig and
// ReduceConfig::global_memory_size.
#pragma once

#include <cstdint>

#include "headroom/base/bytes.h"
#include "headroom/gpu/profile.h"

namespace headroom::gpu {

struct Reduction {
  std::int64_t results = 1;
  std::int64_t elements = 1;  // summed into each result
  bool innermost = false;     // neighbours in memory are elements of one result, not results
  int at_once = 1;            // neighbours read at once: 4, 2 or 1
  int accumulator = 4;        // bytes of the accumulator
};

struct ReductionMemory {
  Bytes parts, counters;  // both 0: one block computes each result
};
[[nodiscard]] ReductionMemory memory_of(const Reduction& reduction, const DeviceProfile& chip);

// The rows of partial sums that CUDA's layer norm takes for its parameters' gradients: it sums many
// short rows in two passes. 0: one pass. Without a chip, an A100's multiprocessors decide what is
// short. Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel.
[[nodiscard]] std::int64_t layer_norm_partial_rows(std::int64_t rows, std::int64_t columns,
                                                   const DeviceProfile* chip);

// The sum of each column of a contiguous matrix.
[[nodiscard]] Reduction sum_of_rows(std::int64_t rows, std::int64_t columns);

}  // namespace headroom::gpu
