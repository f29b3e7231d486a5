// Counting the CPU's tensors, so that statistics, scopes and histories tell of them as of a card's.
//
//   const CountCpuMemory counting;
//   ...
//   get_gpu_memory_stats(torch::kCPU).max_allocated;
//
// While one lives, LibTorch's CPU allocator is one that counts and passes on: some 100 ns and a
// lock a request. Only what is allocated meanwhile is counted, from zero on; there is no rounding
// and no cache, so reserved is what is allocated. Pinned memory, and what libraries take by
// themselves, is not seen. In compute mode simulated cards keep their data in host memory, which is
// counted, too.
//
// Threads: make and destroy it while no other thread makes tensors; counting is safe from any.
#pragma once

namespace headroom::memory {

class CountCpuMemory {
 public:
  CountCpuMemory();
  ~CountCpuMemory();
  CountCpuMemory(const CountCpuMemory&) = delete;
  CountCpuMemory& operator=(const CountCpuMemory&) = delete;
};

}  // namespace headroom::memory
