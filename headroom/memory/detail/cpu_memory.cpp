#include "headroom/memory/detail/cpu_memory.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/sysinfo.h>

#include <array>
#include <memory>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/time.h"
#include "headroom/libtorch/operator_names.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/trace/recorder.h"

namespace headroom::memory::detail {
namespace {

using c10::CachingAllocator::StatArray;

void free_counted(void* data);

// LibTorch frees memory with the pointer's deleter, oneDNN with that of the allocator installed at
// that time. So allocate() returns the pointer of LibTorch's own allocator unchanged, and either
// deleter can free it. Sizes are kept in a separate table; a pointer missing there was not counted.
class Counter final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : below_->raw_allocate(bytes);
    if (data != nullptr) add(data, bytes);
    return {data, data, &free_counted, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void free(void* data) {
    if (data == nullptr) return;
    remove(data);
    below_->raw_deallocate(data);
  }

  void begin() {
    const std::lock_guard lock(installing_);
    if (users_++ > 0) return;
    {
      const std::lock_guard counting(mutex_);
      live_.clear();
      stats_ = {};
      ++counts_begun_;
    }
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(this, kPriority);
  }
  void end() {
    const std::lock_guard lock(installing_);
    if (--users_ == 0) c10::SetCPUAllocator(before_, kPriority);
  }
  [[nodiscard]] bool counts() {
    const std::lock_guard lock(installing_);
    return users_ > 0;
  }

  [[nodiscard]] std::uint64_t counts_begun() {
    const std::lock_guard lock(mutex_);
    return counts_begun_;
  }
  [[nodiscard]] DeviceStats statistics() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    for (StatArray* stat : all()) (*stat)[0].reset_peak();
  }
  [[nodiscard]] std::vector<allocator::SegmentInfo> snapshot() {
    const std::lock_guard lock(mutex_);
    std::vector<allocator::SegmentInfo> segments;
    for (const auto& [data, size] : live_) {
      const auto address = reinterpret_cast<std::uintptr_t>(data);
      const allocator::BlockInfo block{.address = address,
                                       .size = size,
                                       .requested = size,
                                       .stream = 0,
                                       .state = allocator::BlockInfo::State::allocated};
      segments.push_back({.address = address,
                          .size = size,
                          .stream = 0,
                          .is_large = false,
                          .is_expandable = false,
                          .pool = 0,
                          .blocks = {block}});
    }
    return segments;
  }
  void record(trace::Recorder* recorder) {
    auto names = recorder != nullptr ? std::make_unique<libtorch::OperatorNames>() : nullptr;
    const std::lock_guard lock(mutex_);
    recorder_ = recorder;
    names_.swap(names);
  }

  // All that it guards, for the time of a fork: another thread that allocates would otherwise leave
  // the child a lock that no one releases.
  void lock() {
    installing_.lock();
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    installing_.unlock();
  }

 private:
  // Above every priority that LibTorch sets itself. Restoring the old allocator needs the same one.
  static constexpr std::uint8_t kPriority = 100;

  std::array<StatArray*, 4> all() {
    return {&stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
            &stats_.requested_bytes};
  }

  void add(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const Bytes size{static_cast<std::int64_t>(bytes)};
    const auto [entry, is_new] = live_.try_emplace(data, size);
    // The other deleter freed the previous memory at this address without being counted.
    if (!is_new) take_off(std::exchange(entry->second, size));
    for (StatArray* stat : all()) (*stat)[0].increase(bytes);
    stats_.allocation[0].increase(1);
    stats_.active[0].increase(1);
    tell(trace::Kind::alloc, data, size);
  }

  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto entry = live_.find(data);
    if (entry == live_.end()) return;
    take_off(entry->second);
    tell(trace::Kind::free_requested, data, entry->second);
    tell(trace::Kind::free_completed, data, entry->second);
    live_.erase(entry);
  }

  void take_off(Bytes size) {
    for (StatArray* stat : all()) (*stat)[0].decrease(static_cast<std::size_t>(size.count));
    stats_.allocation[0].decrease(1);
    stats_.active[0].decrease(1);
  }

  void tell(trace::Kind kind, const void* data, Bytes size) {
    if (recorder_ == nullptr) return;
    trace::Event event;
    event.kind = kind;
    event.time_ns = wall_time_ns();
    event.address = reinterpret_cast<std::uintptr_t>(data);
    event.bytes = size;
    recorder_->append(event);
  }

  c10::Allocator* const below_ = c10::GetDefaultCPUAllocator();
  std::mutex installing_;
  int users_ = 0;
  c10::Allocator* before_ = nullptr;

  std::mutex mutex_;  // guards all members below
  std::unordered_map<void*, Bytes> live_;
  DeviceStats stats_;
  std::uint64_t counts_begun_ = 0;
  trace::Recorder* recorder_ = nullptr;
  std::unique_ptr<libtorch::OperatorNames> names_;
};

Counter& counter();

Counter* new_counter() {
  const int error = ::pthread_atfork([] { counter().lock(); }, [] { counter().unlock(); },
                                     [] { counter().unlock(); });
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_atfork");
  return new Counter;
}

Counter& counter() {
  static Counter& one = *new_counter();  // never destroyed: its pointers outlive static objects
  return one;
}

void free_counted(void* data) {
  counter().free(data);
}

class CpuMemory final : public DeviceMemory {
 public:
  int count() override { return 1; }
  std::uint64_t life(int) override { return counter().counts_begun(); }
  DeviceStats statistics(int) override {
    check_counted();
    return counter().statistics();
  }
  void reset_peaks(int) override { counter().reset_peaks(); }
  std::optional<FreeAndTotal> free_and_total(int) override {
    struct sysinfo machine {};
    if (sysinfo(&machine) != 0) return {};
    const auto bytes = [&](unsigned long pages) {
      return Bytes{static_cast<std::int64_t>(pages)} * machine.mem_unit;
    };
    return FreeAndTotal{bytes(machine.freeram), bytes(machine.totalram)};
  }
  void empty_cache() override {}
  void synchronize(int) override {}
  void change_settings(std::string_view) override {}
  std::vector<allocator::SegmentInfo> snapshot(int) override {
    check_counted();
    return counter().snapshot();
  }
  void record(int, trace::Recorder* recorder) override { counter().record(recorder); }

 private:
  static void check_counted() {
    if (!counter().counts())
      throw UsageError(expectation("memory", "a CountCpuMemory that counts the CPU's memory",
                                   "none",
                                   "keeping a CountCpuMemory meanwhile, or the device of a GPU"));
  }
};

}  // namespace

DeviceMemory& cpu_memory() {
  static CpuMemory memory;
  return memory;
}

}  // namespace headroom::memory::detail

namespace headroom::memory {

CountCpuMemory::CountCpuMemory() {
  detail::counter().begin();
}
CountCpuMemory::~CountCpuMemory() {
  detail::counter().end();
}

}  // namespace headroom::memory
