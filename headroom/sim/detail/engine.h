// The autograd engine counts devices once, at its first backward pass. One that ran before the
// cards existed knows none; so simulating brings an engine of its own, which begins anew.
#pragma once

namespace headroom::sim::detail {

// In a Python process the engine belongs to Python and stays.
void install_engine();

}  // namespace headroom::sim::detail
