// Lists what is alive on a device: every block that a tensor holds now, largest first. Where a
// history was recorded, each names the module, operator, step and mark of its allocation.
//
//   for (const LiveAllocation& one : live_allocations(device)) say(to_string(one));
//
// To find lingering tensors, call it after the point where everything should be freed; the marks
// show when each was allocated.
//
// Threads: call it while nothing else allocates on the device.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/trace/event.h"

namespace headroom::memory {

struct LiveAllocation {
  c10::Device device{c10::DeviceType::CPU};
  std::uint64_t address = 0;
  Bytes bytes;      // size of its block
  Bytes requested;  // before rounding
  // From the history. Empty without one, or if it began after the allocation.
  bool is_recorded = false;
  std::string module, operation;
  std::string mark;  // the last one before the allocation
  std::uint32_t step = 0;
  trace::Phase phase = trace::Phase::unknown;
  trace::Category category = trace::Category::unknown;
  std::int64_t since_ns = 0;  // time of the allocation, in nanoseconds since 1970
};

// On the CPU, lists only tensors that a CountCpuMemory has counted. Throws UsageError for a device
// that does not exist, or a CPU that is not counted.
[[nodiscard]] std::vector<LiveAllocation> live_allocations(c10::Device device);

// "sim:0 64.0 MiB since module h.0.mlp, aten::mm, step 3, forward, after 'epoch 2'"
[[nodiscard]] std::string to_string(const LiveAllocation& allocation);

}  // namespace headroom::memory
