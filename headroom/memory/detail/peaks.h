// Peaks of several beholders over a device that has one peak. The allocator remembers the highest
// mark since its last reset, for all; a scope wants the highest inside of it and must leave what is
// outside right. So every time a beholder begins or asks, the allocator's mark is noted down for
// all that are open; it is reset when one begins.
//
// Threads: everything may be called from any; one lock for all devices.
#pragma once

#include <c10/core/Device.h>

#include "headroom/memory/device.h"

namespace headroom::memory::detail {

struct Peaks {
  Bytes allocated, reserved, active, requested;
  void raise_to(const Peaks& other);
};
[[nodiscard]] Peaks peaks_of(const DeviceStats& stats);

// Whose peaks began with it, and are right whatever others open, close or reset meanwhile.
class Beholder {
 public:
  explicit Beholder(c10::Device device);
  ~Beholder();
  Beholder(const Beholder&) = delete;
  Beholder& operator=(const Beholder&) = delete;
  [[nodiscard]] Peaks peaks();

 private:
  friend class Ledger;
  c10::Device device_;
  Peaks seen_;
};

// The device's own peaks: since the program's last reset.
[[nodiscard]] Peaks overall_peaks(c10::Device device, const DeviceStats& now);
void reset_overall_peaks(c10::Device device);

}  // namespace headroom::memory::detail
