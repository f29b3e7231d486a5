// Records the events of the allocator model.
//
//   Recorder recorder;
//   RecordingObserver observer(recorder, {.device = 0, .now_ns = clock});
//   card.observe(&observer);
//
// Private pools are not recorded: an event in one looks like any other.
#pragma once

#include <cstdint>
#include <functional>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// The trace's kind for the allocator's kind of the same name.
[[nodiscard]] Kind kind_of(allocator::AllocatorEvent::Kind kind);

struct RecordingObserverOptions {
  std::uint16_t device = 0;
  // Without a function all times are 0, which means unknown.
  std::function<std::int64_t()> now_ns = {};
};

class RecordingObserver final : public allocator::Observer {
 public:
  explicit RecordingObserver(Recorder& recorder, RecordingObserverOptions options = {});
  void on(const allocator::AllocatorEvent& allocator_event) override;

 private:
  Recorder& recorder_;
  RecordingObserverOptions options_;
};

}  // namespace headroom::trace
