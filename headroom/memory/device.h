// What memory/ asks of a kind of device, behind one interface for cuda, sim and cpu.
//
// cuda and sim give most of it through c10::DeviceAllocator; a simulated card's room registers the
// rest, because it lies below this one. The CPU counts while a CountCpuMemory lives.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
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
};

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Devices whose memory can be asked for; looking makes no context on any.
  [[nodiscard]] virtual int count() = 0;
  // Another number when the device of this index is another than before, whose figures began anew.
  [[nodiscard]] virtual std::uint64_t life(int /*index*/) { return 0; }
  [[nodiscard]] virtual DeviceStats statistics(int index) = 0;
  virtual void reset_peaks(int index) = 0;
  // Nothing: asking would make a context on a card that has none.
  [[nodiscard]] virtual std::optional<FreeAndTotal> free_and_total(int index) = 0;
  // Of all devices of the kind.
  virtual void empty_cache() = 0;
  virtual void synchronize(int index) = 0;
  [[nodiscard]] virtual std::vector<allocator::SegmentInfo> snapshot(int index) = 0;
  // Until null is given.
  virtual void record(int index, trace::Recorder* recorder) = 0;
};

// Cards of a kind that c10::DeviceAllocator serves: what it does not tell.
class AcceleratorMemory : public DeviceMemory {
 public:
  explicit AcceleratorMemory(c10::DeviceType type) : type_(type) {}

  [[nodiscard]] DeviceStats statistics(int index) override;
  void reset_peaks(int index) override;
  [[nodiscard]] std::optional<FreeAndTotal> free_and_total(int index) override;
  void empty_cache() override;
  void synchronize(int index) override;

 private:
  c10::DeviceType type_;
};

// For good. The memory of a device type of ours; called once, before it has devices.
void register_device_memory(c10::DeviceType type, DeviceMemory& memory);

// Throws UsageError for a kind of device that nobody counts, or an index that it does not have.
[[nodiscard]] DeviceMemory& memory_of(c10::Device device);

// With its index: `cuda` may stand for the current card.
[[nodiscard]] c10::Device concrete(c10::Device device);

// Every card (not the CPU) of every kind that this process has now.
[[nodiscard]] std::vector<c10::Device> cards_now();

}  // namespace headroom::memory
