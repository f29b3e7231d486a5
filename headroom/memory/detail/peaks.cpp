#include "headroom/memory/detail/peaks.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace headroom::memory::detail {

void Peaks::raise_to(const Peaks& other) {
  allocated = std::max(allocated, other.allocated);
  reserved = std::max(reserved, other.reserved);
  active = std::max(active, other.active);
  requested = std::max(requested, other.requested);
}

Peaks peaks_of(const DeviceStats& stats) {
  return {.allocated = Bytes{stats.allocated_bytes[0].peak},
          .reserved = Bytes{stats.reserved_bytes[0].peak},
          .active = Bytes{stats.active_bytes[0].peak},
          .requested = Bytes{stats.requested_bytes[0].peak}};
}

// One page per device. The lock is held while calling the allocator, whose locks nest inside.
class Ledger {
 public:
  void open(PeakMeter& meter) {
    const std::lock_guard lock(mutex_);
    Page& page = page_of(meter.device_);
    note(meter.device_, page);
    memory_of(meter.device_).reset_peaks(meter.device_.index());
    page.open.insert(&meter);
  }
  void close(PeakMeter& meter) {
    const std::lock_guard lock(mutex_);
    pages_[meter.device_].open.erase(&meter);
  }
  Peaks ask(PeakMeter& meter) {
    const std::lock_guard lock(mutex_);
    note(meter.device_, page_of(meter.device_));
    return meter.seen_;
  }
  Peaks overall(c10::Device device, const DeviceStats& now) {
    const std::lock_guard lock(mutex_);
    Peaks peaks = page_of(device).overall;
    peaks.raise_to(peaks_of(now));
    return peaks;
  }
  void reset(c10::Device device) {
    const std::lock_guard lock(mutex_);
    Page& page = page_of(device);
    note(device, page);
    page.overall = {};
    memory_of(device).reset_peaks(device.index());
  }

 private:
  struct Page {
    Peaks overall;  // since the program's last reset, up to the allocator's last one
    std::set<PeakMeter*> open;
    std::uint64_t life = 0;
  };
  struct ByName {
    bool operator()(c10::Device one, c10::Device other) const {
      return std::pair(one.type(), one.index()) < std::pair(other.type(), other.index());
    }
  };

  Page& page_of(c10::Device device) {
    Page& page = pages_[device];
    const std::uint64_t life = memory_of(device).life(device.index());
    if (std::exchange(page.life, life) != life) page.overall = {};
    return page;
  }

  static void note(c10::Device device, Page& page) {
    const Peaks now = peaks_of(memory_of(device).statistics(device.index()));
    page.overall.raise_to(now);
    for (PeakMeter* meter : page.open) meter->seen_.raise_to(now);
  }

  std::mutex mutex_;
  std::map<c10::Device, Page, ByName> pages_;
};

namespace {

Ledger& ledger() {
  static Ledger one;
  return one;
}

}  // namespace

PeakMeter::PeakMeter(c10::Device device) : device_(device) {
  ledger().open(*this);
}
PeakMeter::~PeakMeter() {
  ledger().close(*this);
}
Peaks PeakMeter::peaks() {
  return ledger().ask(*this);
}

Peaks overall_peaks(c10::Device device, const DeviceStats& now) {
  return ledger().overall(device, now);
}
void reset_overall_peaks(c10::Device device) {
  ledger().reset(device);
}

}  // namespace headroom::memory::detail
