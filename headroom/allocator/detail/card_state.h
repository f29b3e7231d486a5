// The state of one card, and the rules that change it. The state is plain tables that refer to each
// other by number, so that a copy is a few copied vectors.
//
//   requests.cpp    allocate and free
//   release.cpp     give memory back to the driver: garbage collection, retries, empty_cache
//   expandable.cpp  expandable segments
//   events.cpp      blocks that other streams still use
//   pools.cpp       private pools
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/allocator/detail/driver.h"
#include "headroom/allocator/detail/free_blocks.h"

namespace headroom::allocator {

struct CachingAllocator::Card {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  enum class State : std::uint8_t {
    unused,  // an unused row of the table
    allocated,
    awaiting,  // freed, but another stream may still use it
    free,
    unmapped,  // addresses of an expandable segment that have no memory mapped
  };

  struct Block {
    std::uint64_t address = 0;
    std::int64_t size = 0;
    std::int64_t requested = 0;                    // kept after the block is freed
    std::int64_t searches_when_freed = 0;          // of the pool; gives the block's age
    BlockId previous = kNoBlock, next = kNoBlock;  // neighbours in the segment
    std::uint32_t pool = 0;
    StreamId stream = 0;
    std::uint32_t range = kNone;  // expandable segments only
    std::uint64_t order = 0;      // of free blocks of equal size, the lowest is taken (TieRule)
    std::uint32_t events = 0;     // of other streams, not yet complete
    bool used_elsewhere = false;  // other_streams has a row for it
    State state = State::unused;

    [[nodiscard]] bool is_split() const { return previous != kNoBlock || next != kNoBlock; }
    [[nodiscard]] bool is_expandable() const { return range != kNone; }
    [[nodiscard]] bool is_vacant() const {
      return state == State::free || state == State::unmapped;
    }
  };

  // The free and unmapped blocks of one stream in a pool.
  struct Shelf {
    detail::FreeBlocks free;
    std::map<std::uint64_t, BlockId> unmapped;  // by address
  };

  struct Pool {
    bool is_small = false;
    PoolId owner = 0;           // 0: the common pool
    std::int64_t searches = 0;  // counted while garbage collection is on
    std::size_t blocks = 0;     // in any state
    std::map<StreamId, Shelf> shelves;
  };
  static constexpr std::uint32_t kSmallPool = 0, kLargePool = 1;

  struct PrivatePool {
    int users = 1;
    // Calls to the driver not yet undone. With expandable segments 2.11 counts a request that maps
    // memory as one call, however many mappings it makes, and each unmapping as one.
    int driver_calls = 0;
    std::uint32_t small = kNone, large = kNone;
  };

  // The address range of one expandable segment.
  struct Range {
    std::uint64_t address = 0;
    std::int64_t size = 0;
    std::int64_t page = 0;
  };

  struct EventQueue {
    std::deque<BlockId> blocks;  // in the order of their recorded events
    std::size_t done = 0;        // number of complete events at the front
  };

  struct Request {
    std::int64_t requested;
    std::int64_t size;     // rounded
    std::int64_t segment;  // size to ask of the driver
    StreamId stream;
    std::uint32_t pool;
  };

  // Not copied with the rest: a fork has no observer.
  struct ObserverSlot {
    Observer* observer = nullptr;
    ObserverSlot() = default;
    ObserverSlot(const ObserverSlot&) {}
    ObserverSlot& operator=(const ObserverSlot&) = delete;
    ~ObserverSlot() = default;
  };

  explicit Card(const CardOptions& options);

  // ---- requests.cpp
  BlockId allocate(std::int64_t requested, StreamId stream);
  void free(BlockId id);
  void adopt(const Settings& settings);
  [[nodiscard]] std::int64_t rounded(std::int64_t requested) const;
  [[nodiscard]] std::int64_t segment_size(std::int64_t size) const;
  [[nodiscard]] std::uint32_t pool_for(std::int64_t size) const;
  BlockId find_free(const Request& request);
  BlockId obtain(const Request& request);
  BlockId take_from_driver(const Request& request, bool is_retry);
  BlockId refuse(const Request& request);
  [[nodiscard]] bool should_split(const Block& block, std::int64_t size) const;
  BlockId split(BlockId id, const Request& request);
  BlockId hand_out(BlockId id, const Request& request);
  void make_free(BlockId id);
  std::int64_t merge(BlockId into, BlockId other);
  BlockId new_segment(std::uint32_t pool, StreamId stream, std::uint64_t address, std::int64_t size,
                      std::uint32_t range = kNone);
  BlockId new_part(const Block& of, std::uint64_t address, std::int64_t size);
  BlockId new_block(const Block& block);
  void move_start(Block& block, std::uint64_t address) const;
  void drop_block(BlockId id);
  void insert_free(BlockId id);
  void erase_free(BlockId id);
  [[nodiscard]] bool is_capturing() const {
    return version.pools_are_captures && !open_pools.empty();
  }
  [[nodiscard]] bool is_rejected_beforehand(const Request& request) const;
  [[nodiscard]] bool collects_garbage() const { return limit && collection_threshold > 0; }
  [[nodiscard]] Block& allocated_block(BlockId id, std::string_view function);

  // ---- release.cpp
  void collect_garbage();
  bool release_available(const Request& request);
  void release_cached();
  void release_pool_blocks(std::uint32_t pool);
  void release_segment(BlockId id);

  // ---- expandable.cpp
  BlockId grow(const Request& request);
  BlockId find_room(const Request& request);
  BlockId new_range(const Request& request);
  [[nodiscard]] std::optional<std::int64_t> address_reserve() const;
  bool map(BlockId id, std::int64_t size);
  void unmap(BlockId id);
  void drop_range(BlockId id);

  // ---- events.cpp
  void record_stream(BlockId id, StreamId stream);
  void record_events(BlockId id);
  void record_deferred_events();
  void process_events();
  void synchronize_all();
  void finish_event(BlockId id);
  void complete_events(StreamId stream);

  // ---- pools.cpp
  void begin_pool(PoolId id);
  void end_pool(PoolId id);
  void release_pool(PoolId id);
  PrivatePool& live_pool(PoolId id, std::string_view function);
  std::uint32_t new_pool(bool is_small, PoolId owner);
  void drop_empty_pools();
  void count_driver_call(std::uint32_t pool, int change);

  // ---- snapshot.cpp
  [[nodiscard]] BlockInfo describe(const Block& block) const;
  [[nodiscard]] std::vector<SegmentInfo> snapshot() const;

  Shelf& shelf_of(const Block& block) {
    return pools[block.pool].shelves.find(block.stream)->second;
  }
  void increase(StatByPool& stat, std::uint32_t pool, std::int64_t amount) {
    stat.all.increase(amount);
    (pools[pool].is_small ? stat.small : stat.large).increase(amount);
  }
  void decrease(StatByPool& stat, std::uint32_t pool, std::int64_t amount) {
    stat.all.decrease(amount);
    (pools[pool].is_small ? stat.small : stat.large).decrease(amount);
  }
  void tell(AllocatorEvent::Kind kind, std::uint64_t address, std::int64_t size, StreamId stream,
            std::uint32_t pool) const {
    if (slot.observer)
      slot.observer->on({kind, address, Bytes{size}, stream, pools[pool].owner, {}});
  }
  void tell(AllocatorEvent::Kind kind, const Block& block) const {
    if (slot.observer)
      slot.observer->on({kind, block.address, Bytes{block.requested}, block.stream,
                         pools[block.pool].owner, Bytes{block.size}});
  }

  Version version;
  EventRule event_rule;
  Settings settings;
  // Settings that every request reads
  std::int64_t max_split_size = kNoLimit;
  std::int64_t max_unsplit_excess = 0;
  std::int64_t large_segment = 0;
  double collection_threshold = 0;
  bool plain_rounding = true;
  bool expandable = false;

  std::optional<std::int64_t> limit;  // with a memory fraction below 1

  std::uint64_t next_order = 0;  // of the next segment or block, where age decides
  Statistics statistics;
  detail::Driver driver;
  std::vector<Block> blocks;
  std::vector<BlockId> unused_blocks;
  std::vector<Pool> pools;
  std::vector<std::uint32_t> unused_pools;
  std::vector<Range> ranges;

  std::map<BlockId, std::vector<StreamId>> other_streams;  // recorded on a block, sorted
  std::map<StreamId, EventQueue> queues;                   // never contains an empty queue

  std::map<PoolId, PrivatePool> private_pools;
  std::vector<PoolId> open_pools;       // requests use the last one
  std::vector<BlockId> deferred_frees;  // freed while a pool was open and other streams used them
  // By block: streams recorded while a pool was open. A deferred free does not wait for them. As in
  // 2.11, an ordinary free keeps the row, which then also applies to later allocations of the same
  // block; a deferred free erases it. Here dropping the block erases it too.
  std::map<BlockId, std::vector<StreamId>> streams_of_open_pools;

  bool rejected_beforehand = false;  // the current request
  OutOfMemory refusal;
  bool met_fault = false;
  ObserverSlot slot;
};

}  // namespace headroom::allocator
