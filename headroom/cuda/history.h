// Sends the events of CUDA's caching allocator to recorders, and keeps the last refusal.
//
// Threads: all functions may be called from any thread. An allocation in progress may still report
// to a recorder that is being removed: remove and destroy recorders while no other thread uses the
// device.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::trace {
class Recorder;
}

namespace headroom::cuda {

// Numbers the streams of a device in the order of their first use; the default stream is 0.
[[nodiscard]] std::uint32_t stream_number(int device, const void* stream);

// Sends every allocator event of this device to the recorder; null stops it.
void record(int device, trace::Recorder* recorder);
// Since observe_refusals() was called; nothing if there was none.
[[nodiscard]] std::optional<allocator::OutOfMemory> last_out_of_memory(int device);

// Call once, when the library is loaded: the allocator cannot remove an observer.
void observe_refusals();

}  // namespace headroom::cuda
