// What CUDA's caching allocator does, told to recorders and kept for the last refusal.
#pragma once

#include <optional>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::trace {
class Recorder;
}

namespace headroom::cuda {

// Numbers for the streams of a device, in the order in which they appear; the default one is 0.
[[nodiscard]] std::uint32_t stream_number(int device, const void* stream);

void record(int device, trace::Recorder* recorder);
[[nodiscard]] std::optional<allocator::OutOfMemory> last_out_of_memory(int device);

// Once, when the library is loaded: the allocator has no way to take an observer back.
void observe_refusals();

}  // namespace headroom::cuda
