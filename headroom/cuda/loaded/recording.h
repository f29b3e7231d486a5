// Sends the events of CUDA's caching allocator to recorders.
//
// Threads: all functions may be called from any thread. An allocation in progress may still report
// to a recorder that is being removed: remove and destroy recorders while no other thread uses the
// device.
#pragma once

#include <cstdint>

namespace headroom::trace {
class Recorder;
}

namespace headroom::cuda {

// Numbers the streams of a device in the order of their first use; the default stream is 0.
[[nodiscard]] std::uint32_t stream_number(int device, const void* stream);

// Sends every allocator event of this device to the recorder; null stops it.
void record(int device, trace::Recorder* recorder);

}  // namespace headroom::cuda
