// The CPU's memory as a device: the figures of the counting allocator.
#pragma once

#include "headroom/memory/device_memory.h"

namespace headroom::memory::detail {

// Its statistics and snapshot throw UsageError while no CountCpuMemory lives.
[[nodiscard]] DeviceMemory& cpu_memory();

}  // namespace headroom::memory::detail
