#include "headroom/trace/recording_observer.h"

#include <utility>

#include "headroom/base/error.h"

namespace headroom::trace {

Kind kind_of(allocator::Happening::Kind kind) {
  using Happened = allocator::Happening::Kind;
  switch (kind) {
    case Happened::alloc:
      return Kind::alloc;
    case Happened::free_requested:
      return Kind::free_requested;
    case Happened::free_completed:
      return Kind::free_completed;
    case Happened::segment_alloc:
      return Kind::segment_alloc;
    case Happened::segment_free:
      return Kind::segment_free;
    case Happened::segment_map:
      return Kind::segment_map;
    case Happened::segment_unmap:
      return Kind::segment_unmap;
    case Happened::oom:
      return Kind::oom;
  }
  throw InternalError(
      expectation("trace", "a kind of happening", std::to_string(static_cast<int>(kind))));
}

RecordingObserver::RecordingObserver(Recorder& recorder, RecordingObserverOptions options)
    : recorder_(recorder), options_(std::move(options)) {}

void RecordingObserver::on(const allocator::Happening& happening) {
  Event event;
  if (options_.now_ns) event.time_ns = options_.now_ns();
  event.address = happening.address;
  event.bytes = happening.size;
  event.stream = happening.stream;
  event.device = options_.device;
  event.kind = kind_of(happening.kind);
  recorder_.append(event);
}

}  // namespace headroom::trace
