// Counts the memory of CPU tensors, so that statistics, scopes and histories cover the CPU like a
// card.
//
//   const CountCpuMemory counting;
//   ...
//   get_gpu_memory_stats(torch::kCPU).max_allocated;
//
// While a CountCpuMemory lives, LibTorch's CPU allocator is replaced by one that counts each
// request and passes it on, at a cost of about 100 ns and one lock per request. Counting starts
// from zero and covers only memory allocated meanwhile. There is no rounding and no cache, so
// reserved equals allocated. Pinned memory and memory that libraries allocate by themselves are not
// counted. Simulated cards in compute mode keep their data in host memory, which is counted too.
//
// Threads: construct and destroy it while no other thread makes tensors; counting itself is
// thread-safe.
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
