// Headroom's autograd engine: LibTorch's engine with its own device threads, and with saved-tensor
// hooks (saved_tensors.h) that need no Python.
#pragma once

namespace headroom::libtorch {

// Makes later backward passes run on this engine. LibTorch's engine counts devices once, at its
// first backward pass, and ignores devices registered later; this one counts again. False if
// another engine is installed (in a Python process, Python's): that one stays.
bool install_engine();

// The same after devices have been registered. An engine that has already run does not know them,
// so a new one replaces it; an engine that is not Headroom's stays and gets threads for them. Do
// not call it during a backward pass.
bool renew_engine();

// Backward passes run on Headroom's engine while it lives, also where another is installed, such as
// Python's, which is installed again afterwards: for a step in C++ in a Python process. Another
// thread must not run a backward pass meanwhile.
class EngineMeanwhile {
 public:
  EngineMeanwhile();
  ~EngineMeanwhile();
  EngineMeanwhile(const EngineMeanwhile&) = delete;
  EngineMeanwhile& operator=(const EngineMeanwhile&) = delete;
};

// True if Headroom's engine is the one installed, and no backward pass has begun on it: it has no
// device threads yet.
bool is_engine_unused();

// True in a thread that works on a backward pass.
bool in_backward_pass();

// Returns when no thread works on a backward pass that has thrown. Passes on another engine are not
// known. Use settle() (settle.h).
void wait_for_failed_passes();

}  // namespace headroom::libtorch
