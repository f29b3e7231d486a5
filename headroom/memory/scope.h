// What a block of code did to a device's memory.
//
//   GpuMemoryScope forward(device);
//   ...
//   const GpuMemoryUse use = forward.use();
//   say("forward took " + to_string(use.peak_rise) + ", kept " + to_string(use.kept));
//
// Scopes may nest and overlap, on one thread or several, also with reset_peak_memory_stats()
// inside: each has the peak since it began, and the figures of get_gpu_memory_stats() stay what
// they would be without. Only LibTorch's own figure, c10::DeviceAllocator's, restarts at a scope's
// beginning. A device knows no threads: what others allocate on it meanwhile counts, too.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "headroom/memory/statistics.h"

namespace headroom::memory {

struct GpuMemoryUse {
  c10::Device device{c10::DeviceType::CPU};
  Bytes allocated;      // in all, freed again or not
  Bytes freed;          // in all
  Bytes kept;           // more at the end than at the beginning; negative: less
  Bytes peak;           // the most that was allocated at one time, what was there before included
  Bytes peak_rise;      // of it, above the beginning
  Bytes reserved_kept;  // of the card
  Bytes peak_reserved;
};

// "forward: cuda:0 allocated 2.50 GiB, kept 1.10 GiB, peak 3.20 GiB (2.70 GiB above the start)"
[[nodiscard]] std::string to_string(const GpuMemoryUse& use, std::string_view name = {});

class GpuMemoryScope {
 public:
  explicit GpuMemoryScope(c10::Device device);
  // The line of to_string() goes to the sink at the end.
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
