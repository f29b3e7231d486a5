#include "headroom/memory/summary.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"

namespace headroom::memory {
namespace {

using Row = std::vector<std::string>;
using c10::CachingAllocator::StatArray;

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blanks(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + blanks : blanks + text;
}

// Aligns the first column left and the figures right.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += (i == 0 ? "" : "  ") + padded(row[i], widths[i], i == 0);
    text += '\n';
  }
  return text;
}

Row byte_row(const std::string& name, const StatArray& stat, std::size_t pool, const Bytes* peak) {
  const auto& of = stat[pool];
  return {name, to_string(Bytes{of.current}), peak != nullptr ? to_string(*peak) : "",
          to_string(Bytes{of.allocated}), to_string(Bytes{of.freed})};
}

Row count_row(const std::string& name, const StatArray& stat) {
  return {name, std::to_string(stat[0].current), "", std::to_string(stat[0].allocated),
          std::to_string(stat[0].freed)};
}

std::string in_gib(Bytes size) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", size.gib());
  return text;
}

}  // namespace

std::string memory_summary(c10::Device device) {
  const GpuMemoryStats stats = get_gpu_memory_stats(device);
  const DeviceStats all = memory_of(stats.device).statistics(stats.device.index());
  std::string text = "Memory of " + stats.device.str();
  if (stats.free && stats.total)
    text += ": " + to_string(*stats.free) + " free of " + to_string(*stats.total);
  return text + "\n" +
         table({{"", "now", "peak", "taken in all", "given back"},
                byte_row("allocated", all.allocated_bytes, 0, &stats.max_allocated),
                byte_row("  in blocks below 1 MiB", all.allocated_bytes, 1, nullptr),
                byte_row("  in larger ones", all.allocated_bytes, 2, nullptr),
                byte_row("requested", all.requested_bytes, 0, &stats.max_requested),
                byte_row("active", all.active_bytes, 0, &stats.max_active),
                byte_row("reserved", all.reserved_bytes, 0, &stats.max_reserved),
                byte_row("inactive split", all.inactive_split_bytes, 0, nullptr),
                count_row("allocations", all.allocation),
                count_row("segments", all.segment)}) +
         "retries after giving the cache back: " + std::to_string(stats.retries) +
         ", out of memory: " + std::to_string(stats.ooms) + "\n";
}

std::string short_memory_summary(c10::Device device) {
  const GpuMemoryStats stats = get_gpu_memory_stats(device);
  return "GPU Memory Summary (" + stats.device.str() +
         "):\n  Allocated: " + in_gib(stats.allocated) + "\n  Reserved: " + in_gib(stats.reserved) +
         "\n  Max Allocated: " + in_gib(stats.max_allocated) + "\n";
}

}  // namespace headroom::memory
