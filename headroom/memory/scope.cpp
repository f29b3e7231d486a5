#include "headroom/memory/scope.h"

#include "headroom/memory/detail/peaks.h"
#include "headroom/memory/device_memory.h"

namespace headroom::memory {

struct GpuMemoryScope::State {
  State(std::string of, c10::Device on, Sink to)
      : name(std::move(of)),
        device(concrete(on)),
        start(memory_of(device).statistics(device.index())),
        meter(device),
        sink(std::move(to)) {}

  std::string name;
  c10::Device device;
  DeviceStats start;
  mutable detail::PeakMeter meter;
  Sink sink;
};

GpuMemoryScope::GpuMemoryScope(c10::Device device) : GpuMemoryScope("", device, {}) {}

GpuMemoryScope::GpuMemoryScope(std::string name, c10::Device device, Sink sink)
    : state_(std::make_unique<State>(std::move(name), device, std::move(sink))) {}

// A report must not end the program: if the device no longer exists, the sink gets none.
GpuMemoryScope::~GpuMemoryScope() {
  if (!state_->sink) return;
  try {
    state_->sink(to_string(use(), state_->name));
  } catch (...) {
  }
}

GpuMemoryUse GpuMemoryScope::use() const {
  const auto& before = state_->start;
  const detail::Peaks peaks = state_->meter.peaks();
  const DeviceStats now = memory_of(state_->device).statistics(state_->device.index());
  const auto since = [&](auto stat, auto field) {
    return Bytes{(now.*stat)[0].*field - (before.*stat)[0].*field};
  };
  using Stat = c10::CachingAllocator::Stat;
  GpuMemoryUse use;
  use.device = state_->device;
  use.allocated = since(&DeviceStats::allocated_bytes, &Stat::allocated);
  use.freed = since(&DeviceStats::allocated_bytes, &Stat::freed);
  use.kept = since(&DeviceStats::allocated_bytes, &Stat::current);
  use.reserved_kept = since(&DeviceStats::reserved_bytes, &Stat::current);
  use.peak = peaks.allocated;
  use.peak_rise = peaks.allocated - Bytes{before.allocated_bytes[0].current};
  use.peak_reserved = peaks.reserved;
  return use;
}

std::string to_string(const GpuMemoryUse& use, std::string_view name) {
  std::string line(name);
  if (!line.empty()) line += ": ";
  return line + use.device.str() + " allocated " + to_string(use.allocated) + ", kept " +
         to_string(use.kept) + ", peak " + to_string(use.peak) + " (" + to_string(use.peak_rise) +
         " above the start)";
}

}  // namespace headroom::memory
