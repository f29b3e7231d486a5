// A model of PyTorch's CUDA caching allocator, 2.11 to 2.15 (version.h). It needs neither PyTorch
// nor a card: the same requests give the same blocks, statistics and refusals, to the byte
// (tests/oracle/ runs the real allocator beside it), unless they meet one of two bugs of PyTorch;
// met_fault_of_original() says whether they did.
// Addresses are numbers; no memory is behind them.
//
// One object is one card. It is a value: a copy is an independent fork, cheap enough to try
// something on and discard. Any thread may use an object, but only one thread at a time.
//
//   CachingAllocator card({.capacity = 24_GiB, .settings = parse_settings("...")});
//   const BlockId block = card.allocate(3_GiB);
//   if (block == kNoBlock) return say(to_string(card.last_out_of_memory()));
//   card.free(block);
//
// It does not model the CUDA context, the memory that cuDNN and cuBLAS take for themselves, or
// other processes: PyTorch's allocator does not allocate these. Subtract them from `capacity` or
// pass them to set_used_by_others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/card_options.h"
#include "headroom/allocator/settings.h"
#include "headroom/allocator/statistics.h"
#include "headroom/base/bytes.h"

namespace headroom::allocator {

// Identifies a block from allocate() to free(); later blocks may reuse the number.
using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = ~BlockId{0};

// 0 is the default stream; other streams may have any other number.
using StreamId = std::uint32_t;

// Identifies a private pool: memory kept apart, as for a CUDA graph. Any number but 0.
using PoolId = std::uint64_t;

// PyTorch refuses requests of this size or more without asking the allocator, so no statistic
// counts them.
inline constexpr Bytes kTooLarge{std::int64_t{1} << 60};

// The figures of a refused request, as in PyTorch's error text.
struct OutOfMemory {
  Bytes requested;             // by the caller
  Bytes tried;                 // size of the request to the driver
  Bytes capacity;              // of the card
  Bytes free;                  // on the card, when the request was refused
  std::optional<Bytes> limit;  // most the process may reserve, if limited
  Bytes allocated;             // in allocated blocks
  Bytes reserved;              // taken from the driver, whether in use or not
  Bytes free_in_private_pools;
  std::optional<Bytes> address_reserve;  // exceeded, by a request that the card could hold
  bool rejected_beforehand = false;      // by throw_on_cudamalloc_oom
  RefusalEnd end = RefusalEnd::advises_expandable_segments;  // of the text
};

// "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of ...": exactly the
// text of PyTorch's exception. `device` replaces "GPU 0".
[[nodiscard]] std::string to_string(const OutOfMemory& refusal,
                                    const std::string& device = "GPU 0");

struct BlockInfo {
  std::uint64_t address = 0;
  Bytes size;
  Bytes requested;  // for a free block, the request of its last owner
  StreamId stream = 0;
  enum class State { allocated, awaiting_free, free } state = State::free;
  bool operator==(const BlockInfo&) const = default;
};

// Memory taken from the driver in one piece; for an expandable segment, a contiguous mapped
// stretch.
struct SegmentInfo {
  std::uint64_t address = 0;
  Bytes size;
  StreamId stream = 0;
  bool is_large = false;
  bool is_expandable = false;
  PoolId pool = 0;  // 0: the common pool
  std::vector<BlockInfo> blocks;
  bool operator==(const SegmentInfo&) const = default;
};

// An allocator event as in PyTorch's memory history. Observers receive each before the next one
// happens.
struct AllocatorEvent {
  enum class Kind {
    alloc,
    free_requested,
    free_completed,
    segment_alloc,
    segment_free,
    segment_map,
    segment_unmap,
    oom,  // address: the bytes free on the card; size: the rounded request
  } kind;
  std::uint64_t address = 0;
  Bytes size;  // of block events: the requested size
  StreamId stream = 0;
  PoolId pool = 0;
  Bytes block;  // of block events: the size of the block, after rounding
};
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on(const AllocatorEvent& allocator_event) = 0;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(const CardOptions& options = {});
  CachingAllocator(const CachingAllocator& other);  // a fork; it has no observer
  CachingAllocator(CachingAllocator&& other) noexcept;
  CachingAllocator& operator=(CachingAllocator other) noexcept;
  ~CachingAllocator();

  // ---- Requests ----

  // Returns kNoBlock if the request does not fit even after all cached memory is released, or is
  // kTooLarge or more; last_out_of_memory() then has the figures. Throws UsageError for less than
  // one byte: PyTorch does not ask its allocator for 0 bytes.
  [[nodiscard]] BlockId allocate(Bytes requested, StreamId stream = 0);
  void free(BlockId block);

  // Declares that another stream uses the block too. After free() the block stays active until that
  // stream's work is done.
  void record_stream(BlockId block, StreamId stream);
  // With EventRule::when_told: completes the events recorded so far on this stream, or on all
  // streams if none is named. The allocator notices at its next request.
  void complete_events(std::optional<StreamId> stream = {});

  // Returns all segments that are entirely free to the driver (torch.cuda.empty_cache).
  void empty_cache();

  // ---- Private pools ----

  // From now on all requests come from this pool; if several pools are open, from the one opened
  // last. Throws UsageError for a pool that is open already, or released but not yet destroyed.
  void begin_pool(PoolId pool);
  void end_pool(PoolId pool);
  // Undoes one begin_pool. After the last, the pool's free memory may return to the driver.
  void release_pool(PoolId pool);

  // ---- Settings ----

  [[nodiscard]] const Version& version() const;
  [[nodiscard]] const Settings& settings() const;
  // Changes settings while the program runs (allocator::apply parses them from a text). The memory
  // fraction does not change.
  void change_settings(const Settings& settings);
  // Limits reserved memory to this fraction of the capacity, as
  // torch.cuda.set_per_process_memory_fraction does; 1 removes the limit.
  void set_memory_fraction(double fraction);
  // Says how much of the card other processes hold now. It does not count as free.
  void set_used_by_others(Bytes used);

  // ---- Figures ----

  [[nodiscard]] const Statistics& statistics() const;
  [[nodiscard]] Bytes free_on_card() const;
  [[nodiscard]] BlockInfo block(BlockId block) const;
  // Sorted by address.
  [[nodiscard]] std::vector<SegmentInfo> snapshot() const;
  // Valid after allocate() returned kNoBlock.
  [[nodiscard]] const OutOfMemory& last_out_of_memory() const;

  // True once the requests met a bug of PyTorch that this model does not imitate: from then on
  // the real allocator may differ, or have failed. There are two. With expandable segments PyTorch
  // can lose count of a private pool, and destroy it while blocks live in it. After
  // max_split_size_mb is lowered, it can return split blocks to the driver. Here the pool or block
  // stays.
  [[nodiscard]] bool met_fault_of_original() const;

  // As torch.cuda.reset_peak_memory_stats and reset_accumulated_memory_stats.
  void reset_peaks();
  void reset_accumulated();

  // Reports all later events to `observer`, which must outlive this object or be replaced first;
  // null stops.
  void observe(Observer* observer);

 private:
  struct Card;
  std::unique_ptr<Card> card_;
};

}  // namespace headroom::allocator
