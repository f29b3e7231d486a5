#include "headroom/sim/device/pinned.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <map>
#include <mutex>

#include "headroom/sim/device/register_device.h"

namespace headroom::sim::detail {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr host = c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* const data = host.get();
    if (data == nullptr) return host;
    {
      const std::lock_guard lock(mutex_);
      blocks_[data] = bytes;
    }
    // Freed by forget(): the pointer is its own context.
    host.release_context();
    return {data, data, &forget, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &forget; }

  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  [[nodiscard]] bool holds(const void* pointer) const {
    const std::lock_guard lock(mutex_);
    auto after = blocks_.upper_bound(pointer);
    if (after == blocks_.begin()) return false;
    const auto& [start, bytes] = *std::prev(after);
    return static_cast<const char*>(pointer) < static_cast<const char*>(start) + bytes;
  }

 private:
  static void forget(void* pointer);

  mutable std::mutex mutex_;
  std::map<const void*, std::size_t, std::less<>> blocks_;  // by address
};

PinnedAllocator& instance() {
  static PinnedAllocator& allocator = *new PinnedAllocator;  // outlives every tensor
  return allocator;
}

void PinnedAllocator::forget(void* pointer) {
  {
    const std::lock_guard lock(instance().mutex_);
    instance().blocks_.erase(pointer);
  }
  c10::GetDefaultCPUAllocator()->raw_deallocate(pointer);
}

}  // namespace

bool is_pinned(const void* pointer) {
  return instance().holds(pointer);
}

c10::Allocator* pinned_allocator() {
  return &instance();
}

void register_pinned_allocator() {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, &instance());
}

}  // namespace headroom::sim::detail
