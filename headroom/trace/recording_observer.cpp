#include "headroom/trace/recording_observer.h"

#include <utility>

#include "headroom/base/error.h"

namespace headroom::trace {

Kind kind_of(allocator::AllocatorEvent::Kind kind) {
  using AllocatorKind = allocator::AllocatorEvent::Kind;
  switch (kind) {
    case AllocatorKind::alloc:
      return Kind::alloc;
    case AllocatorKind::free_requested:
      return Kind::free_requested;
    case AllocatorKind::free_completed:
      return Kind::free_completed;
    case AllocatorKind::segment_alloc:
      return Kind::segment_alloc;
    case AllocatorKind::segment_free:
      return Kind::segment_free;
    case AllocatorKind::segment_map:
      return Kind::segment_map;
    case AllocatorKind::segment_unmap:
      return Kind::segment_unmap;
    case AllocatorKind::oom:
      return Kind::oom;
  }
  throw InternalError(
      expectation("trace", "a kind of allocator event", std::to_string(static_cast<int>(kind))));
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
