// Reports the memory that an operator reads and writes to the checker of streams
// (device/stream_order.h). With SimulationOptions::check_streams off these cost a branch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headroom/sim/dispatch/call.h"

namespace headroom::sim::detail {

// An operator on its card's current stream: launch_on_stream before it runs, with its arguments,
// and results_on_stream afterwards, with its results. Both throw libtorch::DeviceError if a wait is
// missing.
[[nodiscard]] std::uint64_t launch_on_stream(const Call& call);
void results_on_stream(const Call& call, std::uint64_t launched);

// The same for a copy, on the stream and with the waits that CUDA's has.
void copy_on_stream(const at::Tensor& from, const at::Tensor& to, bool non_blocking);
// The host waits for the value.
void read_on_stream(const at::Tensor& tensor);

}  // namespace headroom::sim::detail
