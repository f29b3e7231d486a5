#include "headroom/memory/live.h"

#include <algorithm>
#include <unordered_map>

#include "headroom/memory/device_memory.h"
#include "headroom/memory/history.h"
#include "headroom/trace/memory_reader.h"

namespace headroom::memory {
namespace {

struct Birth {
  trace::Event event;
  trace::Name mark = 0;
};
using Births = std::unordered_map<std::uint64_t, Birth>;

// The allocations that the history saw and that were not freed since, by address.
Births births_in(trace::Reader& history, std::uint16_t device) {
  Births births;
  trace::Name mark = 0;
  for (trace::Event event; history.next(event);) {
    if (event.kind == trace::Kind::mark) mark = event.operation;
    if (event.device != device) continue;
    if (event.kind == trace::Kind::alloc) births[event.address] = {event, mark};
    if (event.kind == trace::Kind::free_requested) births.erase(event.address);
  }
  return births;
}

void describe(LiveAllocation& allocation, const Birth& birth, const trace::Names& names) {
  allocation.is_recorded = true;
  allocation.module = names.text(birth.event.module);
  allocation.operation = names.text(birth.event.operation);
  allocation.mark = names.text(birth.mark);
  allocation.step = birth.event.step;
  allocation.phase = birth.event.phase;
  allocation.category = birth.event.category;
  allocation.since_ns = birth.event.time_ns;
}

std::vector<LiveAllocation> blocks_of(c10::Device device) {
  std::vector<LiveAllocation> live;
  for (const auto& segment : memory_of(device).snapshot(device.index()))
    for (const allocator::BlockInfo& block : segment.blocks) {
      if (block.state != allocator::BlockInfo::State::allocated) continue;
      LiveAllocation& one = live.emplace_back();
      one.device = device;
      one.address = block.address;
      one.bytes = block.size;
      one.requested = block.requested;
    }
  return live;
}

}  // namespace

std::vector<LiveAllocation> live_allocations(c10::Device device) {
  device = concrete(device);
  std::vector<LiveAllocation> live = blocks_of(device);
  if (const trace::Recorder* const recorder = recorder_of(device)) {
    const auto history = trace::read_memory(*recorder);
    const auto index = static_cast<std::uint16_t>(device.is_cpu() ? 0 : device.index());
    const Births births = births_in(*history, index);
    for (LiveAllocation& one : live)
      if (const auto birth = births.find(one.address); birth != births.end())
        describe(one, birth->second, history->names());
  }
  std::stable_sort(live.begin(), live.end(), [](const auto& one, const auto& other) {
    return one.bytes != other.bytes ? one.bytes > other.bytes : one.address < other.address;
  });
  return live;
}

std::string to_string(const LiveAllocation& allocation) {
  std::string line = allocation.device.str() + " " + to_string(allocation.bytes);
  if (!allocation.is_recorded) return line + ", no history of it";
  std::string since = allocation.module.empty() ? "" : "module " + allocation.module;
  const auto add = [&](const std::string& text) { since += (since.empty() ? "" : ", ") + text; };
  if (!allocation.operation.empty()) add(allocation.operation);
  add("step " + std::to_string(allocation.step));
  if (allocation.phase != trace::Phase::unknown) add(std::string(to_string(allocation.phase)));
  if (!allocation.mark.empty()) add("after '" + allocation.mark + "'");
  return line + " since " + since;
}

}  // namespace headroom::memory
