// The interface through which memory/ reads a device, the same for cuda, sim and cpu.
//
// cuda and sim implement most of it through c10::DeviceAllocator. sim/ registers its own part,
// because memory/ may not include it. The CPU counts while a CountCpuMemory lives.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::trace {
class Recorder;
}

namespace headroom::memory {

using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

struct FreeAndTotal {
  Bytes free, total;
  double share = 1;  // of the total, that this process may reserve
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Number of devices whose memory can be queried; creates no context on any of them.
  [[nodiscard]] virtual int count() = 0;
  // Changes when another device takes this index and its figures restart.
  [[nodiscard]] virtual std::uint64_t life(int /*index*/) { return 0; }
  // Where a storage of the device begins, as in a snapshot.
  [[nodiscard]] virtual std::uint64_t address_of(const c10::Storage& storage) {
    return reinterpret_cast<std::uintptr_t>(storage.data());
  }
  // False if its tensors have no data: a simulated card that knows shapes only.
  [[nodiscard]] virtual bool has_data(int /*index*/) { return true; }
  [[nodiscard]] virtual DeviceStats statistics(int index) = 0;
  virtual void reset_peaks(int index) = 0;
  // std::nullopt if the card has no context, because asking would create one.
  [[nodiscard]] virtual std::optional<FreeAndTotal> free_and_total(int index) = 0;
  // Limits the memory that this process may reserve on the device to a share of its total, which
  // free_and_total() shows from then on; 1: no limit. A CPU has none.
  virtual void set_share(int /*index*/, double /*share*/) {}
  // Empties the caches of all devices of the kind.
  virtual void empty_cache() = 0;
  virtual void synchronize(int index) = 0;
  // From now on, on all devices of the kind: settings as in PYTORCH_ALLOC_CONF. Throws UsageError.
  virtual void change_settings(std::string_view text) = 0;
  [[nodiscard]] virtual std::vector<allocator::SegmentInfo> snapshot(int index) = 0;
  // Records into this recorder until called with null.
  virtual void record(int index, trace::Recorder* recorder) = 0;
};

// Cards of a kind that c10::DeviceAllocator serves. A subclass adds the functions that it does not
// offer: count, snapshot and recording.
class AcceleratorMemory : public DeviceMemory {
 public:
  explicit AcceleratorMemory(c10::DeviceType type) : type_(type) {}

  [[nodiscard]] DeviceStats statistics(int index) override;
  void reset_peaks(int index) override;
  [[nodiscard]] std::optional<FreeAndTotal> free_and_total(int index) override;
  void empty_cache() override;
  void synchronize(int index) override;
  void change_settings(std::string_view text) override;

 private:
  c10::DeviceType type_;
};

// Registers the memory of a device type of ours, permanently. Call it once, before the type has
// devices.
void register_device_memory(c10::DeviceType type, DeviceMemory& memory);

// Throws UsageError for a kind of device whose memory is not counted, or an index out of range.
[[nodiscard]] DeviceMemory& memory_of(c10::Device device);

// The device with an index: plain `cuda` means the current card.
[[nodiscard]] c10::Device concrete(c10::Device device);

// Every card (not the CPU) of every kind that this process has now.
[[nodiscard]] std::vector<c10::Device> cards_now();

}  // namespace headroom::memory
