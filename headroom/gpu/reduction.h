// The memory that PyTorch's CUDA kernel for sums, means and norms takes while it runs. Where few
// results are made of many elements each - the gradient of a bias, of all tokens - several blocks
// of threads share a result, and hand each other their parts of it through memory.
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
  std::int64_t elements = 1;  // of which each result is made
  bool innermost = false;     // elements of one result are neighbours in memory, not the results
  int at_once = 1;            // so many neighbours are read at once: 4, 2 or 1
  int accumulator = 4;        // bytes of the number that is summed up
};

struct ReductionMemory {
  Bytes parts, counters;  // both nothing: one block makes a result
};
[[nodiscard]] ReductionMemory memory_of(const Reduction& reduction, const DeviceProfile& chip);

// Of a contiguous matrix's columns.
[[nodiscard]] Reduction sum_of_rows(std::int64_t rows, std::int64_t columns);

}  // namespace headroom::gpu
