// The calls of modules that run in this thread, reported by a frame that has hooks for them
// (Python): memory that a module's own code allocates, or a child of it that has no tensors, is
// then the module's (attribution.h), not that of the last child with parameters.
//
//   enter_module("h.0.attn");
//   ...                        // its forward
//   leave_module();            // also if it throws
//
// Each thread has its own. Names are those of Subject::modules; others are ignored.
#pragma once

#include <string>

namespace headroom::dryrun {

struct ModuleCall {
  std::string name;
  bool in_backward = false;  // a checkpoint's second forward pass
};

void enter_module(std::string name);
void leave_module();

// Null if none runs. Valid until the next of the two above.
[[nodiscard]] const ModuleCall* innermost_module_call();

}  // namespace headroom::dryrun
