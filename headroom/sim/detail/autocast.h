// Mixed precision on `sim`: which operators autocast runs in which type.
#pragma once

namespace headroom::sim::detail {

void register_autocast();

}  // namespace headroom::sim::detail
