// After a backward pass that threw: other devices' threads may still finish a node of it, and write
// a gradient. settle() returns when none does.
//
//   try {
//     loss.backward();
//   } catch (...) {
//     libtorch::settle(libtorch::devices_of(parameters));   // random_state.h
//     optimizer->zero_grad();    // nothing writes gradients any more
//     loss.reset();              // the graph
//     ...                        // try again with less
//   }
//
// Tensors that waited in the threads' queues have been freed by then, too. It takes no memory of
// the devices, and waits for nothing that they compute.
//
// In a Python process the engine is Python's: there a node that runs a backward pass of its own
// (reentrant checkpointing) over several devices may still run when settle() returns.
//
// Threads: call it from any thread that runs backward passes; passes of others go on.
#pragma once

#include <c10/core/Device.h>

#include <vector>

namespace headroom::libtorch {

void settle(const std::vector<c10::Device>& devices);

}  // namespace headroom::libtorch
