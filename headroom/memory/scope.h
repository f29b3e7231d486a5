// Measures what a block of code does to a device's memory.
//
//   GpuMemoryScope forward(device);
//   ...
//   const GpuMemoryUse use = forward.use();
//   say("forward took " + to_string(use.peak_rise) + ", kept " + to_string(use.kept));
//
// Scopes may nest and overlap, on one thread or several, even with reset_peak_memory_stats()
// inside: each reports the peak since it began, and the figures of get_gpu_memory_stats() do not
// change. Only LibTorch's own peak, that of c10::DeviceAllocator, restarts when a scope begins. A
// device does not tell threads apart: what other threads allocate on it meanwhile counts too.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "headroom/memory/memory_statistics.h"

namespace headroom::memory {

struct GpuMemoryUse {
  c10::Device device{c10::DeviceType::CPU};
  Bytes allocated;      // in total, including memory freed again
  Bytes freed;          // in total
  Bytes kept;           // allocated at the end minus at the beginning; may be negative
  Bytes peak;           // most allocated at one time, including earlier allocations
  Bytes peak_rise;      // peak minus allocated at the beginning
  Bytes reserved_kept;  // reserved at the end minus at the beginning
  Bytes peak_reserved;
};

// "forward: cuda:0 allocated 2.50 GiB, kept 1.10 GiB, peak 3.20 GiB (2.70 GiB above the start)"
[[nodiscard]] std::string to_string(const GpuMemoryUse& use, std::string_view name = {});

class GpuMemoryScope {
 public:
  explicit GpuMemoryScope(c10::Device device);
  // The destructor sends the line of to_string() to the sink.
  GpuMemoryScope(std::string name, c10::Device device, Sink sink);
  ~GpuMemoryScope();
  GpuMemoryScope(const GpuMemoryScope&) = delete;
  GpuMemoryScope& operator=(const GpuMemoryScope&) = delete;

  // From the beginning to now.
  [[nodiscard]] GpuMemoryUse use() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headroom::memory
