#include "headroom/memory/history.h"

#include <map>
#include <mutex>

#include "headroom/base/error.h"
#include "headroom/memory/device_memory.h"

namespace headroom::memory {
namespace {

std::mutex mutex;
std::map<std::string, trace::Recorder*> recorders;  // by the device's name

}  // namespace

History::History(c10::Device device, trace::Recorder& recorder) : device_(concrete(device)) {
  DeviceMemory& memory = memory_of(device_);
  (void)memory.statistics(device_.index());  // throws for a CPU that is not counted
  const std::lock_guard lock(mutex);
  if (!recorders.emplace(device_.str(), &recorder).second)
    throw UsageError(expectation("record_history", "a device without another History",
                                 device_.str() + ", which is being recorded",
                                 "ending that History first"));
  try {
    memory.record(device_.index(), &recorder);
  } catch (...) {
    recorders.erase(device_.str());
    throw;
  }
}

// A simulated card may no longer exist.
History::~History() {
  const std::lock_guard lock(mutex);
  recorders.erase(device_.str());
  try {
    memory_of(device_).record(device_.index(), nullptr);
  } catch (const Error&) {
  }
}

trace::Recorder* recorder_of(c10::Device device) {
  const std::lock_guard lock(mutex);
  const auto found = recorders.find(concrete(device).str());
  return found == recorders.end() ? nullptr : found->second;
}

}  // namespace headroom::memory
