// Mixed precision on `sim`: the type in which autocast runs each operator. CUDA's lists, or the
// CPU's on a card that follows the CPU's rules.
#pragma once

namespace headroom::sim::detail {

void register_autocast();

}  // namespace headroom::sim::detail
