// How LibTorch asks for the current card and stream of a thread.
#pragma once

namespace headroom::sim::detail {

void register_guard();

}  // namespace headroom::sim::detail
