// Giving back what nobody uses, and finding what somebody does.
//
//   const Cleared cleared = clear_gpu_memory();
//   say(to_string(cleared.given_back()) + " given back");
//   for (const LiveAllocation& one : clear_gpu_memory(true).lingering) say(to_string(one));
//
// Only memory of this process, and only what has no tensor in it: a tensor's memory is freed by
// letting the tensor go. It is not needed for speed, on the contrary, and not for fitting either:
// the allocator gives its cache back by itself before it refuses. It helps others on the card.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "headroom/memory/live.h"

namespace headroom::memory {

struct ClearedDevice {
  c10::Device device{c10::DeviceType::CPU};
  Bytes reserved_before, reserved_after;
  Bytes allocated;  // by tensors, which stays
};

struct Cleared {
  std::vector<ClearedDevice> devices;
  // With force: what is alive on all of them, biggest first.
  std::vector<LiveAllocation> lingering;
  [[nodiscard]] Bytes given_back() const;
};

// Drops the caches of every card that this process has, of every kind. With `force` it first waits
// for the cards, and drops what else is kept for later: weights that autocast has cast (all of this
// process), cuBLAS's workspaces, pinned host memory; then it looks for tensors that live on. Call
// that between steps, while nothing runs.
Cleared clear_gpu_memory(bool force = false);

}  // namespace headroom::memory
