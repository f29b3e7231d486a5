#include "headroom/memory/device_memory.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "headroom/base/error.h"
#include "headroom/cuda/load.h"
#include "headroom/libtorch/operator_names.h"
#include "headroom/memory/detail/cpu_memory.h"

namespace headroom::memory {
namespace {

constexpr std::size_t kKinds = c10::COMPILE_TIME_MAX_DEVICE_TYPES;
std::array<std::atomic<DeviceMemory*>, kKinds> registered{};

class CudaMemory final : public AcceleratorMemory {
 public:
  CudaMemory() : AcceleratorMemory(c10::kCUDA) {}

  int count() override { return cuda_functions().device_count(); }
  std::optional<FreeAndTotal> free_and_total(int index) override {
    if (!cuda_functions().has_context(index)) return {};
    const auto [free, total] = cuda_functions().memory_info(index);
    return FreeAndTotal{free, total, cuda_functions().memory_fraction(index)};
  }
  void set_share(int index, double share) override {
    cuda_functions().set_memory_fraction(index, share);
  }
  void synchronize(int index) override {
    if (cuda_functions().has_context(index)) cuda_functions().synchronize(index);
  }
  std::vector<allocator::SegmentInfo> snapshot(int index) override {
    return cuda_functions().snapshot(index);
  }
  // One at a time: History has a lock.
  void record(int index, trace::Recorder* recorder) override {
    cuda_functions().record(index, recorder);
    if (recorder != nullptr)
      names_.try_emplace(index, std::make_unique<libtorch::OperatorNames>());
    else
      names_.erase(index);
  }

 private:
  std::map<int, std::unique_ptr<libtorch::OperatorNames>> names_;  // of recorded cards
};

DeviceMemory* find(c10::DeviceType type) {
  static CudaMemory cuda;
  if (type == c10::kCPU) return &detail::cpu_memory();
  if (type == c10::kCUDA) return &cuda;
  return registered[static_cast<std::size_t>(type)].load();
}

c10::DeviceAllocator& allocator_of(c10::DeviceType type) {
  return *c10::getDeviceAllocator(type);
}

c10::DeviceIndex small(int index) {
  return static_cast<c10::DeviceIndex>(index);
}

// Advice for a device that does not exist; "" when nothing helps.
std::string advice(c10::Device device, int count) {
  if (count > 0) return "an index from 0 to " + std::to_string(count - 1);
  return device.is_privateuseone() ? "simulate(), and keep what it returns" : "";
}

}  // namespace

DeviceStats AcceleratorMemory::statistics(int index) {
  return allocator_of(type_).getDeviceStats(small(index));
}
void AcceleratorMemory::reset_peaks(int index) {
  allocator_of(type_).resetPeakStats(small(index));
}
std::optional<FreeAndTotal> AcceleratorMemory::free_and_total(int index) {
  const auto [free, total] = allocator_of(type_).getMemoryInfo(small(index));
  return FreeAndTotal{Bytes{static_cast<std::int64_t>(free)},
                      Bytes{static_cast<std::int64_t>(total)}};
}
void AcceleratorMemory::empty_cache() {
  allocator_of(type_).emptyCache();
}
void AcceleratorMemory::synchronize(int index) {
  c10::impl::VirtualGuardImpl(type_).synchronizeDevice(small(index));
}

void AcceleratorMemory::change_settings(std::string_view text) {
  try {
    c10::CachingAllocator::setAllocatorSettings(std::string(text));
  } catch (const c10::Error& error) {
    throw UsageError(std::string(text), error.what_without_backtrace());
  }
}

void register_device_memory(c10::DeviceType type, DeviceMemory& memory) {
  registered[static_cast<std::size_t>(type)] = &memory;
}

c10::Device concrete(c10::Device device) {
  if (device.has_index() || device.is_cpu()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

DeviceMemory& memory_of(c10::Device device) {
  DeviceMemory* const memory = find(device.type());
  const int count = memory == nullptr ? 0 : memory->count();
  if (memory != nullptr && (device.is_cpu() || (device.index() >= 0 && device.index() < count)))
    return *memory;
  const std::string why =
      device.is_cuda() && count == 0 ? ": " + cuda_functions().why_absent() : "";
  throw UsageError(expectation("memory",
                               "a device whose memory is counted (cpu, a card of cuda or sim)",
                               device.str() + why, advice(device, count)));
}

std::vector<c10::Device> cards_now() {
  std::vector<c10::Device> cards;
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    const auto type = static_cast<c10::DeviceType>(kind);
    DeviceMemory* const memory = type == c10::kCPU ? nullptr : find(type);
    const int count = memory == nullptr ? 0 : memory->count();
    for (int i = 0; i < count; ++i) cards.emplace_back(type, small(i));
  }
  return cards;
}

}  // namespace headroom::memory
