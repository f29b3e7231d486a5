// The caching allocator that PyTorch 2.11 puts between tensors and a CUDA card, without PyTorch and
// without a card: the same requests give the same blocks, statistics and refusals, to the byte
// (tests/oracle/ runs the real one beside it). Nothing is ever stored at an address.
//
// One object is one card. It is a value: a copy is a fork that lives its own life, cheap enough to
// try something on and throw away. Any thread may own one; two may not use one at the same time.
//
//   CachingAllocator card({.capacity = 24_GiB, .settings = parse_settings("...")});
//   const BlockId block = card.allocate(3_GiB);
//   if (block == kNoBlock) return say(to_string(card.last_out_of_memory()));
//   card.free(block);
//
// What it is not: the CUDA context, cuDNN's and cuBLAS's own memory, other processes. They are not
// PyTorch's allocations; take them off `capacity` or pass them to set_used_by_others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/allocator/settings.h"
#include "headroom/allocator/statistics.h"
#include "headroom/allocator/version.h"
#include "headroom/base/bytes.h"

namespace headroom::allocator {

// Names a block from allocate() to free(); afterwards the number may name another.
using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = ~BlockId{0};

// 0 is the default stream; the others are any numbers.
using StreamId = std::uint32_t;

// A private pool: memory kept apart, as for a CUDA graph. Any number but 0.
using PoolId = std::uint64_t;

// More than any card has. Some twenty address ranges of that size stay below 2^53, above which
// viewers in JavaScript round.
inline constexpr Bytes kUnlimited{std::int64_t{1} << 48};

// From here on PyTorch refuses without asking the allocator: nothing is counted.
inline constexpr Bytes kTooLarge{std::int64_t{1} << 60};

// When work that another stream does with a block counts as done.
enum class EventRule {
  at_once,    // when it is recorded; the allocator notices at its next request
  when_told,  // when complete_events is called, or the allocator itself waits for the stream
};

// Which addresses the driver gives. They decide only between free blocks of equal size.
enum class AddressPolicy {
  ascending,   // each above all before it; none is used again
  descending,  // each below all before it
  lowest,      // the lowest gap that is large enough
};

struct CardOptions {
  Bytes capacity = kUnlimited;  // exactly this much can be taken from the driver; never more
  Settings settings = {};       // its per_process_memory_fraction holds from the start
  EventRule events = EventRule::at_once;
  AddressPolicy addresses = AddressPolicy::ascending;
  Version version = kTorch211;
};

// The figures of a refused request, as PyTorch's text gives them.
struct OutOfMemory {
  Bytes requested;             // what the caller asked for
  Bytes tried;                 // what was asked of the driver for it
  Bytes capacity;              // of the card
  Bytes free;                  // on the card, at the end
  std::optional<Bytes> limit;  // with a memory fraction below 1: what this process may reserve
  Bytes allocated;             // in blocks handed out
  Bytes reserved;              // taken from the driver, used or not
  Bytes free_in_private_pools;
};

// "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of ...", the text of
// PyTorch's exception to the letter; `device` is what stands for "GPU 0".
[[nodiscard]] std::string to_string(const OutOfMemory& refusal,
                                    const std::string& device = "GPU 0");

struct BlockInfo {
  std::uint64_t address = 0;
  Bytes size;
  Bytes requested;  // of a free block: of whoever had it last
  StreamId stream = 0;
  enum class State { allocated, awaiting_free, free } state = State::free;
  bool operator==(const BlockInfo&) const = default;
};

// A piece of memory taken from the driver; of an expandable segment, a mapped stretch without gap.
struct SegmentInfo {
  std::uint64_t address = 0;
  Bytes size;
  StreamId stream = 0;
  bool is_large = false;
  bool is_expandable = false;
  PoolId pool = 0;  // 0: the common one
  std::vector<BlockInfo> blocks;
  bool operator==(const SegmentInfo&) const = default;
};

// What happens inside, as PyTorch's memory history tells it, each before the next begins.
struct Happening {
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
  Bytes size;  // of blocks: what was requested
  StreamId stream = 0;
  PoolId pool = 0;
  Bytes block;  // of blocks: what they take, rounding included
};
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on(const Happening& happening) = 0;
};

class CachingAllocator {
 public:
  explicit CachingAllocator(const CardOptions& options = {});
  CachingAllocator(const CachingAllocator& other);  // the fork; it has no observer
  CachingAllocator(CachingAllocator&& other) noexcept;
  CachingAllocator& operator=(CachingAllocator other) noexcept;
  ~CachingAllocator();

  // ---- Requests ----

  // kNoBlock: it does not fit, whatever is given back; last_out_of_memory() has the figures.
  // `requested` is at least one byte: for 0, PyTorch does not ask the allocator.
  [[nodiscard]] BlockId allocate(Bytes requested, StreamId stream = 0);
  void free(BlockId block);

  // Another stream uses the block too: after free() it stays active until its work is done.
  void record_stream(BlockId block, StreamId stream);
  // With EventRule::when_told: what was recorded on this stream so far is done; on all, if none is
  // named. The allocator notices at its next request.
  void complete_events(std::optional<StreamId> stream = {});

  // Everything wholly free goes back to the driver (torch.cuda.empty_cache).
  void empty_cache();

  // ---- Private pools ----

  // From here on all requests come from this pool; of several, from the one begun last. UsageError:
  // it is in use already, or released and not yet gone.
  void begin_pool(PoolId pool);
  void end_pool(PoolId pool);
  // Takes back one begin_pool; after the last, its free memory may go to the driver.
  void release_pool(PoolId pool);

  // ---- Settings ----

  [[nodiscard]] const Settings& settings() const;
  // A change while the program runs (allocator::apply makes it from a text). The memory fraction is
  // not touched by it.
  void change_settings(const Settings& settings);
  // 1: no limit.
  void set_memory_fraction(double fraction);
  // Memory of the card that others hold now: it is not free.
  void set_used_by_others(Bytes used);

  // ---- Questions ----

  [[nodiscard]] const Statistics& statistics() const;
  [[nodiscard]] Bytes capacity() const;
  [[nodiscard]] Bytes free_on_card() const;
  [[nodiscard]] BlockInfo block(BlockId block) const;
  // Sorted by address.
  [[nodiscard]] std::vector<SegmentInfo> snapshot() const;
  // After allocate() answered kNoBlock.
  [[nodiscard]] const OutOfMemory& last_out_of_memory() const;

  // Two faults of 2.11 are not imitated: with expandable segments it can lose count of a private
  // pool and drop it while blocks live in it; and when max_split_size_mb is lowered it can give
  // split blocks to the driver. Here such a pool or block simply stays. True once one was met: from
  // there on the real allocator may differ, or have failed.
  [[nodiscard]] bool met_fault_of_original() const;

  void reset_peaks();
  void reset_accumulated();

  // Told of everything from now on, until null is given; must live that long.
  void observe(Observer* observer);

 private:
  struct Card;
  std::unique_ptr<Card> card_;
};

}  // namespace headroom::allocator
