// The memory of a device over the steps of a run, from the events of its allocator.
//
//   MemoryCurve curve(device);
//   curve.begin_step();  ... a step ...  curve.end_step();
//   curve.points();           // some of each step, its peak among them
//   curve.repeats_itself();   // the last step made the same requests as the one before it
//
// Threads: one at a time, and none may allocate on the device during these calls.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/memory/history.h"
#include "headroom/trace/recorder.h"

namespace headroom::bench {

struct MemoryPoint {
  double at = 0;    // steps since the start: 2.5 is the middle of the third one
  Bytes requested;  // by all tensors together
  Bytes reserved;
};

class MemoryCurve {
 public:
  // Of the events from now on. A device that is recorded already keeps its recorder.
  explicit MemoryCurve(c10::Device device);

  void begin_step();
  void end_step();
  [[nodiscard]] const std::vector<MemoryPoint>& points() const { return points_; }
  [[nodiscard]] bool repeats_itself() const;

 private:
  c10::Device device_;
  std::unique_ptr<trace::Recorder> own_;
  std::unique_ptr<memory::History> history_;
  trace::Recorder* recorder_ = nullptr;
  std::uint64_t begun_ = 0;  // number of the step's first event
  MemoryPoint now_;
  std::vector<MemoryPoint> points_;
  std::vector<std::uint64_t> fingerprints_;  // of the requests of each step
};

}  // namespace headroom::bench
