// What CUDA's caching allocator does, told to recorders; and the last refusal, kept.
//
// Threads: all may be called from any. An allocation that runs while a recorder is taken back may
// still tell it: it is taken back, and destroyed, while no other thread uses the device.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::trace {
class Recorder;
}

namespace headroom::cuda {

// Numbers for the streams of a device, in the order in which they appear; the default one is 0.
[[nodiscard]] std::uint32_t stream_number(int device, const void* stream);

// Everything that the allocator does on this device goes to the recorder, until null is given.
void record(int device, trace::Recorder* recorder);
// Since observe_refusals() was called; nothing: there was none.
[[nodiscard]] std::optional<allocator::OutOfMemory> last_out_of_memory(int device);

// Once, when the library is loaded: the allocator has no way to take an observer back.
void observe_refusals();

}  // namespace headroom::cuda
