// Simulated cards for memory/: the parts that c10::DeviceAllocator does not have.
#pragma once

namespace headroom::sim::detail {

void register_card_memory();

}  // namespace headroom::sim::detail
