// What the allocator counts, under the names and with the meanings of c10::CachingDeviceAllocator::
// DeviceStats, so that a figure of torch.cuda.memory_stats() can be laid beside ours.
#pragma once

#include <cstdint>

namespace headroom::allocator {

struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // the largest `current` since the last reset of the peaks
  std::int64_t allocated = 0;  // the sum of all increases
  std::int64_t freed = 0;      // the sum of all decreases

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
  // Sums over a very long time begin anew rather than be undefined.
  static void add(std::int64_t& sum, std::int64_t amount) {
    sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) +
                                    static_cast<std::uint64_t>(amount));
  }
};

// Small and large pools are counted apart as well; `all` has a peak of its own.
struct StatByPool {
  Stat all, small, large;
  bool operator==(const StatByPool&) const = default;
};

struct Statistics {
  // Counts
  StatByPool allocation;      // blocks handed out and not freed
  StatByPool segment;         // pieces taken from the driver; expandable segments are not counted
  StatByPool active;          // blocks handed out, or freed but still in use by another stream
  StatByPool inactive_split;  // free blocks that share a segment; expandable ones are not counted
  // Bytes
  StatByPool allocated_bytes;       // of blocks handed out: what rounding added included
  StatByPool reserved_bytes;        // taken from the driver
  StatByPool active_bytes;          // as `active`
  StatByPool inactive_split_bytes;  // as `inactive_split`
  StatByPool requested_bytes;       // what was asked for, in active blocks
  // Counts
  std::int64_t num_alloc_retries = 0;     // tries after all free was given back, failed ones too
  std::int64_t num_ooms = 0;              // requests refused
  std::int64_t num_sync_all_streams = 0;  // waits for all streams
  std::int64_t num_device_alloc = 0;      // calls for memory: segments allocated, ranges mapped
  std::int64_t num_device_free = 0;
  Stat oversize_allocations;  // blocks, and segments, of max_split_size or more
  Stat oversize_segments;
  std::int64_t max_split_size = -1;  // as it was at the start; -1: unlimited

  bool operator==(const Statistics&) const = default;
};

}  // namespace headroom::allocator
