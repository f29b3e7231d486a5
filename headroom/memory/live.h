// What is alive on a device: every piece of memory that a tensor has now, biggest first, and, where
// a history was recorded, since which module, operator, step and mark.
//
//   for (const LiveAllocation& one : live_allocations(device)) say(to_string(one));
//
// That is how lingering tensors are found: after what should have freed everything, mark by mark.
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
  Bytes bytes;      // what it takes
  Bytes requested;  // what was asked for
  // The rest as the history has it; empty without one, or where it began later.
  bool is_recorded = false;
  std::string module, operation;
  std::string mark;  // the last before it was allocated
  std::uint32_t step = 0;
  trace::Phase phase = trace::Phase::unknown;
  trace::Category category = trace::Category::unknown;
  std::int64_t since_ns = 0;  // when it was allocated, in nanoseconds since 1970
};

// Of the CPU only what a CountCpuMemory has counted. Throws UsageError for a device that is not
// there.
[[nodiscard]] std::vector<LiveAllocation> live_allocations(c10::Device device);

// "sim:0 64.0 MiB since module h.0.mlp, aten::mm, step 3, forward, after 'epoch 2'"
[[nodiscard]] std::string to_string(const LiveAllocation& allocation);

}  // namespace headroom::memory
