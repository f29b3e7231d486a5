// The CPU's memory as a device: what the counting allocator has counted.
#pragma once

#include "headroom/memory/device.h"

namespace headroom::memory::detail {

// Its statistics and snapshot throw UsageError while nothing is counted.
[[nodiscard]] DeviceMemory& cpu_memory();

}  // namespace headroom::memory::detail
