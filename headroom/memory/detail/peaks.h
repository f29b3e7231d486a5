// Lets several PeakMeters measure peaks on a device whose allocator keeps only one high-water mark,
// the highest since its last reset. A scope needs the peak of its own period and must not disturb
// the peaks of others. So whenever a PeakMeter opens or is read, the allocator's mark is merged
// into all open PeakMeters; opening one then resets the mark.
//
// Threads: all functions are thread-safe; one lock serves all devices.
#pragma once

#include <c10/core/Device.h>

#include "headroom/memory/device_memory.h"

namespace headroom::memory::detail {

struct Peaks {
  Bytes allocated, reserved, active, requested;
  void raise_to(const Peaks& other);
};
[[nodiscard]] Peaks peaks_of(const DeviceStats& stats);

// Peaks since its construction, correct whatever other PeakMeters and resets do meanwhile.
class PeakMeter {
 public:
  explicit PeakMeter(c10::Device device);
  ~PeakMeter();
  PeakMeter(const PeakMeter&) = delete;
  PeakMeter& operator=(const PeakMeter&) = delete;
  [[nodiscard]] Peaks peaks();

 private:
  friend class Ledger;
  c10::Device device_;
  Peaks seen_;
};

// The device's own peaks since the program's last reset.
[[nodiscard]] Peaks overall_peaks(c10::Device device, const DeviceStats& now);
void reset_overall_peaks(c10::Device device);

}  // namespace headroom::memory::detail
