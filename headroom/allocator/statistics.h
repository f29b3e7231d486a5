// The allocator's counters, with the names and meanings of
// c10::CachingDeviceAllocator::DeviceStats, so that figures of torch.cuda.memory_stats() can be
// compared directly.
#pragma once

#include <cstdint>

namespace headroom::allocator {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // largest `current` since the last reset of the peaks
  std::int64_t allocated = 0;  // sum of all increases
  std::int64_t freed = 0;      // sum of all decreases

  void increase(std::int64_t amount) {
    current += amount;
    add(allocated, amount);
    if (current > peak) peak = current;
  }
  void decrease(std::int64_t amount) {
    current -= amount;
    add(freed, amount);
  }
  bool operator==(const Stat&) const = default;

 private:
  // Wraps around instead of overflowing, which would be undefined behaviour.
  static void add(std::int64_t& sum, std::int64_t amount) {
    sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) +
                                    static_cast<std::uint64_t>(amount));
  }
};

// Small and large pools are also counted separately; `all` has its own peak.
struct StatByPool {
  Stat all, small, large;
  bool operator==(const StatByPool&) const = default;
};

struct Statistics {
  // Counts
  StatByPool allocation;      // allocated blocks
  StatByPool segment;         // taken from the driver; expandable segments are not counted
  StatByPool active;          // allocated blocks, and freed ones that another stream still uses
  StatByPool inactive_split;  // free blocks that share a segment; not expandable ones
  // Bytes
  StatByPool allocated_bytes;       // of allocated blocks, including rounding
  StatByPool reserved_bytes;        // taken from the driver
  StatByPool active_bytes;          // as `active`
  StatByPool inactive_split_bytes;  // as `inactive_split`
  StatByPool requested_bytes;       // requested sizes of active blocks
  // Counts
  std::int64_t num_alloc_retries = 0;     // after releasing all cached memory; also failed ones
  std::int64_t num_ooms = 0;              // refused requests
  std::int64_t num_sync_all_streams = 0;  // waits for all streams
  std::int64_t num_device_alloc = 0;      // driver calls: segments allocated, ranges mapped
  std::int64_t num_device_free = 0;
  Stat oversize_allocations;  // blocks, then segments, of max_split_size or more
  Stat oversize_segments;
  std::int64_t max_split_size = -1;     // at the start; -1: unlimited
  std::int64_t num_oom_rejections = 0;  // by throw_on_cudamalloc_oom; not in num_ooms

  bool operator==(const Statistics&) const = default;
};

}  // namespace headroom::allocator
