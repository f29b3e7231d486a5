// Simulated cards for memory/: what c10::DeviceAllocator does not tell of them.
#pragma once

namespace headroom::sim::detail {

void register_card_memory();

}  // namespace headroom::sim::detail
