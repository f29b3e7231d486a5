#include "headroom/memory/clear.h"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <set>

#include "headroom/cuda/load.h"
#include "headroom/memory/device_memory.h"

namespace headroom::memory {
namespace {

Bytes reserved(c10::Device device) {
  return Bytes{memory_of(device).statistics(device.index()).reserved_bytes[0].current};
}

void drop_what_is_kept_for_later(const std::vector<c10::Device>& cards) {
  for (const c10::Device card : cards) memory_of(card).synchronize(card.index());
  at::autocast::clear_cache();
  cuda_functions().clear_workspaces();
  cuda_functions().empty_host_cache();
}

std::vector<LiveAllocation> alive_on(const std::vector<c10::Device>& cards) {
  std::vector<LiveAllocation> all;
  for (const c10::Device card : cards) {
    const auto here = live_allocations(card);
    all.insert(all.end(), here.begin(), here.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.bytes > other.bytes; });
  return all;
}

}  // namespace

Bytes Cleared::given_back() const {
  Bytes sum;
  for (const ClearedDevice& one : devices) sum += one.reserved_before - one.reserved_after;
  return sum;
}

Cleared clear_gpu_memory(bool force) {
  const std::vector<c10::Device> cards = cards_now();
  Cleared cleared;
  for (const c10::Device card : cards)
    cleared.devices.push_back({.device = card, .reserved_before = reserved(card)});
  if (force) drop_what_is_kept_for_later(cards);

  std::set<DeviceMemory*> kinds;
  for (const c10::Device card : cards)
    if (kinds.insert(&memory_of(card)).second) memory_of(card).empty_cache();
  for (ClearedDevice& one : cleared.devices) {
    const DeviceStats stats = memory_of(one.device).statistics(one.device.index());
    one.reserved_after = Bytes{stats.reserved_bytes[0].current};
    one.allocated = Bytes{stats.allocated_bytes[0].current};
  }
  if (force) cleared.lingering = alive_on(cards);
  return cleared;
}

}  // namespace headroom::memory
