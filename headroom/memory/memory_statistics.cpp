#include "headroom/memory/memory_statistics.h"

#include <algorithm>

#include "headroom/base/text.h"
#include "headroom/memory/detail/peaks.h"
#include "headroom/memory/device_memory.h"

namespace headroom::memory {

std::optional<Bytes> GpuMemoryStats::obtainable() const {
  if (!free) return {};
  const Bytes all = *free + reserved;
  return std::min(all, limit.value_or(all));
}

GpuMemoryStats get_gpu_memory_stats(c10::Device device) {
  device = concrete(device);
  DeviceMemory& memory = memory_of(device);
  const DeviceStats now = memory.statistics(device.index());
  const detail::Peaks peaks = detail::overall_peaks(device, now);
  GpuMemoryStats stats;
  stats.device = device;
  stats.allocated = Bytes{now.allocated_bytes[0].current};
  stats.reserved = Bytes{now.reserved_bytes[0].current};
  stats.active = Bytes{now.active_bytes[0].current};
  stats.requested = Bytes{now.requested_bytes[0].current};
  stats.inactive_split = Bytes{now.inactive_split_bytes[0].current};
  stats.max_allocated = peaks.allocated;
  stats.max_reserved = peaks.reserved;
  stats.max_active = peaks.active;
  stats.max_requested = peaks.requested;
  stats.allocated_in_all = Bytes{now.allocated_bytes[0].allocated};
  stats.freed_in_all = Bytes{now.allocated_bytes[0].freed};
  stats.allocations = now.allocation[0].current;
  stats.segments = now.segment[0].current;
  stats.retries = now.num_alloc_retries;
  stats.ooms = now.num_ooms;
  if (const auto card = memory.free_and_total(device.index())) {
    stats.free = card->free;
    stats.total = card->total;
    if (card->share < 1)
      stats.limit =
          Bytes{static_cast<std::int64_t>(card->share * static_cast<double>(card->total.count))};
  }
  return stats;
}

// A quarter of a byte more than asked: the share of the total is cut to whole bytes again.
std::optional<Bytes> set_memory_limit(c10::Device device, std::optional<Bytes> most) {
  const GpuMemoryStats before = get_gpu_memory_stats(device);
  if (!before.total || before.device.is_cpu()) return before.limit;
  const double total = static_cast<double>(before.total->count);
  const double share =
      most ? (static_cast<double>(std::max(*most, Bytes{0}).count) + 0.25) / total : 1.0;
  memory_of(before.device).set_share(before.device.index(), std::min(share, 1.0));
  return before.limit;
}

void reset_peak_memory_stats(c10::Device device) {
  device = concrete(device);
  (void)memory_of(device).statistics(device.index());  // throws for a CPU that is not counted
  detail::reset_overall_peaks(device);
}

std::string log_gpu_memory_stats(std::string_view prefix, c10::Device device, const Sink& sink) {
  const GpuMemoryStats stats = get_gpu_memory_stats(device);
  std::string line(prefix);
  if (!line.empty()) line += ": ";
  line += stats.device.str() + " allocated " + to_string(stats.allocated) + ", reserved " +
          to_string(stats.reserved) + ", peak " + to_string(stats.max_allocated);
  if (sink) sink(line);
  return line;
}

// "sim:0 to sim:3", or "sim:0, sim:2 and sim:3".
static std::string names_of(const std::vector<c10::Device>& devices) {
  std::vector<std::string> names;
  bool follow = true;  // one another
  for (const c10::Device device : devices) {
    follow = follow && device.index() == devices.front().index() + static_cast<int>(names.size());
    names.push_back(device.str());
  }
  return follow ? names.front() + " to " + names.back() : listed(names);
}

std::string log_gpu_memory_stats(std::string_view prefix, const std::vector<c10::Device>& devices) {
  if (devices.size() == 1) return log_gpu_memory_stats(prefix, devices.front());
  std::string line(prefix);
  if (!line.empty()) line += ": ";
  line += names_of(devices);
  const auto add = [&](const char* name, Bytes GpuMemoryStats::*figure) {
    Bytes least = get_gpu_memory_stats(devices.front()).*figure, most = least;
    for (const c10::Device device : devices) {
      const Bytes now = get_gpu_memory_stats(device).*figure;
      least = std::min(least, now);
      most = std::max(most, now);
    }
    line += std::string(" ") + name + " " + to_string(least);
    if (to_string(most) != to_string(least)) line += " to " + to_string(most);
  };
  add("allocated", &GpuMemoryStats::allocated);
  line += ",";
  add("reserved", &GpuMemoryStats::reserved);
  line += ",";
  add("peak", &GpuMemoryStats::max_allocated);
  return line;
}

}  // namespace headroom::memory
