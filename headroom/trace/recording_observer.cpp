#include "headroom/trace/recording_observer.h"

#include <utility>

namespace headroom::trace {

// Both lists begin with the kinds of PyTorch's history, in the same order.
Kind kind_of(allocator::AllocatorEvent::Kind kind) {
  using AllocatorKind = allocator::AllocatorEvent::Kind;
  static_assert(static_cast<int>(AllocatorKind::alloc) == static_cast<int>(Kind::alloc) &&
                static_cast<int>(AllocatorKind::segment_unmap) ==
                    static_cast<int>(Kind::segment_unmap) &&
                static_cast<int>(AllocatorKind::oom) == static_cast<int>(Kind::oom));
  return static_cast<Kind>(kind);
}

RecordingObserver::RecordingObserver(Recorder& recorder, RecordingObserverOptions options)
    : recorder_(recorder), options_(std::move(options)) {}

void RecordingObserver::on(const allocator::AllocatorEvent& allocator_event) {
  Event event;
  if (options_.now_ns) event.time_ns = options_.now_ns();
  event.address = allocator_event.address;
  event.bytes = allocator_event.size;
  event.stream = allocator_event.stream;
  event.device = options_.device;
  event.kind = kind_of(allocator_event.kind);
  recorder_.append(event);
}

}  // namespace headroom::trace
