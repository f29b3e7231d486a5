// Streams and events of simulated cards. Work is done when it is called, so a stream is always idle
// and an event complete. Streams matter to the allocator, whose blocks belong to the stream they
// were requested on, and to the checker of missing waits (stream_order.h).
#pragma once

#include <c10/core/Stream.h>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::sim::detail {

// This thread's current stream on a card; 0 is the default one.
[[nodiscard]] c10::StreamId current_stream(int card) noexcept;
c10::StreamId exchange_current_stream(int card, c10::StreamId stream) noexcept;
// A stream that has no other user.
[[nodiscard]] c10::StreamId new_stream(int card);
// One of 32 that are handed out in turn, as on CUDA.
[[nodiscard]] c10::StreamId pooled_stream(int card, bool high_priority);

[[nodiscard]] inline allocator::StreamId allocator_stream(c10::StreamId stream) {
  return static_cast<allocator::StreamId>(stream);
}

}  // namespace headroom::sim::detail
