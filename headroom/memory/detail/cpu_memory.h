// The CPU's memory as a device: what the counting allocator has counted.
#pragma once

#include <c10/core/Allocator.h>

#include "headroom/memory/device.h"

namespace headroom::memory::detail {

// Its statistics throw UsageError while nothing is counted.
[[nodiscard]] DeviceMemory& cpu_memory();

// The allocator that counts, over LibTorch's own; there is one, and it lives for good, as memory
// that it gave is freed through it whenever that may be. Nested counts hold it together.
void begin_counting();
void end_counting() noexcept;

}  // namespace headroom::memory::detail
