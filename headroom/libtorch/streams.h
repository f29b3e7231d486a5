// Streams of any kind of device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace headroom::libtorch {

[[nodiscard]] c10::Stream current_stream(c10::Device device);

// Makes the later work on `later` wait for the work given to `earlier` so far.
void order(const c10::Stream& earlier, const c10::Stream& later);

}  // namespace headroom::libtorch
