// The device guard: LibTorch asks it for a thread's current card and stream.
#pragma once

namespace headroom::sim::detail {

void register_guard();

}  // namespace headroom::sim::detail
