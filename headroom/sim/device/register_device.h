// The parts of a backend besides kernels, registered with LibTorch and memory/.
#pragma once

namespace headroom::sim::detail {

// The hooks of an accelerator: its generators, pinned memory, growing a storage.
void register_hooks();
// The device guard: LibTorch asks it for a thread's current card and stream.
void register_guard();
// Simulated cards for memory/: the parts that c10::DeviceAllocator does not have.
void register_card_memory();
// Page-locked host memory: in fact ordinary memory, remembered as pinned (pinned.h).
void register_pinned_allocator();

}  // namespace headroom::sim::detail
