// Gives cached memory back to the driver, and lists the tensors that still hold memory.
//
//   const Cleared cleared = clear_gpu_memory();
//   say(to_string(cleared.given_back()) + " given back");
//   for (const LiveAllocation& one : clear_gpu_memory(true).lingering) say(to_string(one));
//
// Acts on this process only, and only on memory without a live tensor: dropping a tensor frees its
// memory. Clearing slows training and is not needed to fit, because the allocator gives its cache
// back by itself before it reports out of memory. It helps other processes on the card.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "headroom/memory/live.h"

namespace headroom::memory {

struct ClearedDevice {
  c10::Device device{c10::DeviceType::CPU};
  Bytes reserved_before, reserved_after;
  Bytes allocated;  // held by live tensors, so not given back
};

struct Cleared {
  std::vector<ClearedDevice> devices;
  // With `force`: the allocations that are still alive on any card, largest first.
  std::vector<LiveAllocation> lingering;
  [[nodiscard]] Bytes given_back() const;
};

// Empties the allocator caches of every card of every kind that this process has. With `force` it
// first synchronizes the cards and drops other caches: weights that autocast has cast (in the whole
// process), cuBLAS workspaces and pinned host memory. It then lists the allocations still alive.
// Call it with `force` between steps, while nothing runs.
Cleared clear_gpu_memory(bool force = false);

}  // namespace headroom::memory
