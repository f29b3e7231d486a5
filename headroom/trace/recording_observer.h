// What the model of the allocator tells its observer, into a recorder.
//
//   Recorder recorder;
//   RecordingObserver observer(recorder, {.device = 0, .now_ns = clock});
//   card.observe(&observer);
//
// Private pools are not recorded: a happening in one looks like any other.
#pragma once

#include <cstdint>
#include <functional>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// The event of a happening's kind; they have the same names.
[[nodiscard]] Kind kind_of(allocator::Happening::Kind kind);

struct RecordingObserverOptions {
  std::uint16_t device = 0;
  // Nothing: all times are 0, unknown.
  std::function<std::int64_t()> now_ns = {};
};

class RecordingObserver final : public allocator::Observer {
 public:
  explicit RecordingObserver(Recorder& recorder, RecordingObserverOptions options = {});
  void on(const allocator::Happening& happening) override;

 private:
  Recorder& recorder_;
  RecordingObserverOptions options_;
};

}  // namespace headroom::trace
