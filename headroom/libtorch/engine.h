// Headroom's autograd engine: LibTorch's, with device threads of its own and with saved-tensor
// hooks (saved_tensors.h) that need no Python.
#pragma once

namespace headroom::libtorch {

// From now on backward passes run on it. LibTorch's engine counts devices once, at its first
// backward pass, and knows none of those that were registered later; this one begins anew. False:
// the engine is somebody else's, in a Python process Python's, and stays.
bool install_engine();

// The same where devices have been registered just now: an engine that has run already does not
// know them, and a new one takes its place; somebody else's stays and is given threads for them.
// Not while a backward pass runs.
bool renew_engine();

}  // namespace headroom::libtorch
