// Requests: round the size, search the cache, else ask the driver, split, hand out. Frees: merge
// with free neighbours and keep the block.
#include <algorithm>
#include <bit>
#include <string>

#include "headroom/allocator/detail/card_state.h"
#include "headroom/base/error.h"

namespace headroom::allocator {

CachingAllocator::Card::Card(const CardOptions& options)
    : version(options.version),
      event_rule(options.events),
      driver(options.capacity, options.addresses) {
  adopt(options.settings);
  if (max_split_size != kNoLimit) statistics.max_split_size = max_split_size;
  new_pool(true, 0);
  new_pool(false, 0);
}

void CachingAllocator::Card::adopt(const Settings& new_settings) {
  settings = new_settings;
  max_split_size = settings.max_split_size ? settings.max_split_size->count : kNoLimit;
  max_unsplit_excess = settings.max_non_split_rounding_size.count;
  large_segment = settings.large_segment_size.count;
  collection_threshold = settings.garbage_collection_threshold;
  expandable = settings.expandable_segments;
  plain_rounding = std::all_of(settings.roundup_power2_divisions.begin(),
                               settings.roundup_power2_divisions.end(),
                               [](std::uint64_t divisions) { return divisions <= 1; });
}

namespace {

std::int64_t up_to_multiple(std::int64_t size, std::int64_t of) {
  return (size + of - 1) / of * of;
}

// Rounds up to the next of `divisions` equal steps between the neighbouring powers of two.
std::int64_t up_to_division(std::int64_t size, std::uint64_t divisions) {
  const auto bits = static_cast<std::uint64_t>(size);
  if (std::has_single_bit(bits)) return size;
  const std::uint64_t power = std::bit_floor(bits);
  const std::uint64_t step = power / std::bit_floor(divisions);
  if (step == 0) return static_cast<std::int64_t>(power << 1);
  return static_cast<std::int64_t>((bits + step - 1) & ~(step - 1));
}

constexpr int kFirstDivisionEntry = 20;  // Settings::roundup_power2_divisions begins at 2^20 bytes

}  // namespace

std::int64_t CachingAllocator::Card::rounded(std::int64_t requested) const {
  const std::int64_t unit = version.smallest_block.count;
  if (requested < unit) return unit;
  if (!plain_rounding) {
    const auto bits = static_cast<std::uint64_t>(requested);
    const int power = static_cast<int>(std::bit_width(bits)) - 1;
    const auto& table = settings.roundup_power2_divisions;
    const int last = static_cast<int>(table.size()) - 1;
    const auto entry = static_cast<std::size_t>(std::clamp(power - kFirstDivisionEntry, 0, last));
    const std::uint64_t divisions = table[entry];
    if (divisions > 1 && bits > static_cast<std::uint64_t>(unit) * divisions)
      return up_to_division(requested, divisions);
  }
  return up_to_multiple(requested, unit);
}

std::int64_t CachingAllocator::Card::segment_size(std::int64_t size) const {
  if (size <= version.largest_small.count) return version.small_segment.count;
  if (size < version.large_segment_below.count) return large_segment;
  return up_to_multiple(size, version.large_rounding.count);
}

std::uint32_t CachingAllocator::Card::pool_for(std::int64_t size) const {
  const bool is_small = size <= version.largest_small.count;
  if (open_pools.empty()) return is_small ? kSmallPool : kLargePool;
  const auto pool = private_pools.find(open_pools.back());
  if (pool == private_pools.end())
    throw UsageError(expectation("CachingAllocator::allocate", "an open pool that still exists",
                                 std::to_string(open_pools.back()),
                                 "end a pool before it is released and the cache emptied"));
  return is_small ? pool->second.small : pool->second.large;
}

BlockId CachingAllocator::Card::allocate(std::int64_t requested, StreamId stream) {
  if (!is_capturing() && !(queues.empty() && deferred_frees.empty())) process_events();
  const std::int64_t size = rounded(requested);
  const Request request{requested, size, segment_size(size), stream, pool_for(size)};
  BlockId block = find_free(request);
  if (block == kNoBlock) block = obtain(request);
  if (block == kNoBlock) return refuse(request);
  return hand_out(block, request);
}

// Best fit. If the rules for oversize blocks reject the best fit, the search ends without a block.
BlockId CachingAllocator::Card::find_free(const Request& request) {
  Pool& pool = pools[request.pool];
  if (collects_garbage()) ++pool.searches;
  detail::FreeBlocks& free_blocks = pool.shelves[request.stream].free;
  auto best = free_blocks.first_at_least(request.size);
  if (!best) return kNoBlock;

  const auto is_expandable = [&](auto at) {
    return blocks[free_blocks.at(at).block].is_expandable();
  };
  if (is_expandable(best)) {
    if (expandable) {
      // A block before unmapped addresses counts with the size to which it can grow.
      const auto size_it_can_have = [&](auto at) {
        const Block& block = blocks[free_blocks.at(at).block];
        const bool can_grow = block.next != kNoBlock && blocks[block.next].state == State::unmapped;
        return block.size + (can_grow ? blocks[block.next].size : 0);
      };
      for (auto next = free_blocks.next(best);
           is_expandable(best) && next && size_it_can_have(next) < size_it_can_have(best);
           next = free_blocks.next(next))
        best = next;
    } else {
      do {
        best = free_blocks.next(best);
        if (!best) return kNoBlock;
      } while (is_expandable(best));
    }
  }

  const auto [size, order, block] = free_blocks.at(best);
  if (request.size < max_split_size && size >= max_split_size) return kNoBlock;
  if (request.size >= max_split_size && size >= request.size + max_unsplit_excess) return kNoBlock;
  free_blocks.erase(best);
  return block;
}

// No cached block fits: ask the driver, each time after returning more memory to it.
BlockId CachingAllocator::Card::obtain(const Request& request) {
  if (collects_garbage()) collect_garbage();
  rejected_beforehand = false;
  const auto goes_on = [&](BlockId block) { return block == kNoBlock && !rejected_beforehand; };
  BlockId block = take_from_driver(request, false);
  if (goes_on(block) && release_available(request)) block = take_from_driver(request, false);
  if (goes_on(block) && !is_capturing()) {
    release_cached();
    block = take_from_driver(request, true);
  }
  return block;
}

// With throw_on_cudamalloc_oom.
bool CachingAllocator::Card::is_rejected_beforehand(const Request& request) const {
  if (!settings.throw_on_cudamalloc_oom) return false;
  const double most = settings.per_process_memory_fraction * static_cast<double>(driver.capacity());
  return statistics.reserved_bytes.all.current + request.segment > static_cast<std::int64_t>(most);
}

BlockId CachingAllocator::Card::take_from_driver(const Request& request, bool is_retry) {
  if (is_retry) ++statistics.num_alloc_retries;
  // 2.11 checks the whole segment against the limit, even where it would map only pages.
  if (limit && statistics.reserved_bytes.all.current + request.segment > *limit) return kNoBlock;
  rejected_beforehand = is_rejected_beforehand(request);
  if (rejected_beforehand) return kNoBlock;
  if (expandable) {
    const BlockId grown = grow(request);
    if (grown != kNoBlock) count_driver_call(request.pool, +1);
    return grown;
  }
  const auto address = driver.take_segment(request.segment);
  if (!address) return kNoBlock;
  count_driver_call(request.pool, +1);
  const BlockId id = new_segment(request.pool, request.stream, *address, request.segment);
  Block& block = blocks[id];
  block.state = State::free;
  increase(statistics.segment, request.pool, 1);
  increase(statistics.reserved_bytes, request.pool, request.segment);
  if (request.segment >= max_split_size) statistics.oversize_segments.increase(1);
  ++statistics.num_device_alloc;
  tell(AllocatorEvent::Kind::segment_alloc, block.address, block.size, block.stream, block.pool);
  return id;
}

BlockId CachingAllocator::Card::refuse(const Request& request) {
  std::int64_t free_in_private_pools = 0;
  for (const Pool& pool : pools)
    if (pool.owner != 0)
      for (const auto& [stream, shelf] : pool.shelves)
        for (auto at = shelf.free.first(); at; at = shelf.free.next(at))
          free_in_private_pools += shelf.free.at(at).size;
  refusal = {.requested = Bytes{request.requested},
             .tried = Bytes{request.segment},
             .capacity = Bytes{driver.capacity()},
             .free = Bytes{driver.free()},
             .limit = {},
             .allocated = Bytes{statistics.allocated_bytes.all.current},
             .reserved = Bytes{statistics.reserved_bytes.all.current},
             .free_in_private_pools = Bytes{free_in_private_pools},
             .end = expandable ? version.refusal_end : RefusalEnd::advises_expandable_segments};
  if (limit) refusal.limit = Bytes{*limit};
  refusal.rejected_beforehand = rejected_beforehand;
  const auto reserve = address_reserve();
  if (expandable && reserve && *reserve < request.segment && request.segment <= driver.capacity())
    refusal.address_reserve = Bytes{*reserve};
  if (rejected_beforehand) {
    ++statistics.num_oom_rejections;
    return kNoBlock;
  }
  ++statistics.num_ooms;
  tell(AllocatorEvent::Kind::oom, static_cast<std::uint64_t>(driver.free()), request.size,
       request.stream, request.pool);
  return kNoBlock;
}

bool CachingAllocator::Card::should_split(const Block& block, std::int64_t size) const {
  const std::int64_t rest = block.size - size;
  if (pools[block.pool].is_small || expandable) return rest >= version.smallest_block.count;
  return size < max_split_size && rest > version.largest_unsplit_rest.count;
}

// The front becomes a new block; the rest keeps its id and returns to its pool.
BlockId CachingAllocator::Card::split(BlockId rest_id, const Request& request) {
  const BlockId front_id = new_part(blocks[rest_id], blocks[rest_id].address, request.size);
  Block& front = blocks[front_id];
  Block& rest = blocks[rest_id];
  const bool was_split = rest.is_split();
  front.previous = rest.previous;
  front.next = rest_id;
  if (front.previous != kNoBlock) blocks[front.previous].next = front_id;
  rest.previous = front_id;
  move_start(rest, rest.address + static_cast<std::uint64_t>(request.size));
  rest.size -= request.size;
  insert_free(rest_id);
  if (!rest.is_expandable()) {
    if (was_split) {
      decrease(statistics.inactive_split_bytes, front.pool, front.size);
    } else {
      increase(statistics.inactive_split_bytes, front.pool, rest.size);
      increase(statistics.inactive_split, front.pool, 1);
    }
  }
  return front_id;
}

BlockId CachingAllocator::Card::hand_out(BlockId id, const Request& request) {
  if (should_split(blocks[id], request.size)) {
    id = split(id, request);
  } else if (blocks[id].is_split() && !blocks[id].is_expandable()) {
    decrease(statistics.inactive_split_bytes, request.pool, blocks[id].size);
    decrease(statistics.inactive_split, request.pool, 1);
  }
  Block& block = blocks[id];
  block.state = State::allocated;
  block.requested = request.requested;
  tell(AllocatorEvent::Kind::alloc, block);
  increase(statistics.allocation, block.pool, 1);
  increase(statistics.allocated_bytes, block.pool, block.size);
  increase(statistics.active, block.pool, 1);
  increase(statistics.active_bytes, block.pool, block.size);
  increase(statistics.requested_bytes, block.pool, block.requested);
  if (block.size >= max_split_size) statistics.oversize_allocations.increase(1);
  return id;
}

CachingAllocator::Card::Block& CachingAllocator::Card::allocated_block(BlockId id,
                                                                       std::string_view function) {
  if (id >= blocks.size() || blocks[id].state != State::allocated)
    throw UsageError(expectation(function, "a block that is allocated", std::to_string(id),
                                 "free each block once"));
  return blocks[id];
}

void CachingAllocator::Card::free(BlockId id) {
  Block& block = allocated_block(id, "CachingAllocator::free");
  block.state = State::awaiting;
  decrease(statistics.allocation, block.pool, 1);
  decrease(statistics.allocated_bytes, block.pool, block.size);
  tell(AllocatorEvent::Kind::free_requested, block);
  if (block.size >= max_split_size) statistics.oversize_allocations.decrease(1);
  if (!block.used_elsewhere)
    make_free(id);
  else if (!is_capturing())
    record_events(id);
  else
    deferred_frees.push_back(id);
}

void CachingAllocator::Card::make_free(BlockId id) {
  const std::int64_t size = blocks[id].size;
  const std::uint32_t pool = blocks[id].pool;
  tell(AllocatorEvent::Kind::free_completed, blocks[id]);
  blocks[id].state = State::free;
  std::int64_t split_blocks = 0, split_bytes = 0;
  for (const BlockId neighbour : {blocks[id].previous, blocks[id].next}) {
    const std::int64_t joined = merge(id, neighbour);
    split_blocks -= joined > 0;
    split_bytes -= joined;
  }
  insert_free(id);
  const Block& block = blocks[id];
  if (!block.is_expandable()) {
    if (block.is_split()) {
      split_blocks += 1;
      split_bytes += block.size;
    }
    const auto change = [&](StatByPool& stat, std::int64_t by) {
      if (by > 0) increase(stat, pool, by);
      if (by < 0) decrease(stat, pool, -by);
    };
    change(statistics.inactive_split, split_blocks);
    change(statistics.inactive_split_bytes, split_bytes);
  }
  decrease(statistics.active, pool, 1);
  decrease(statistics.active_bytes, pool, size);
  decrease(statistics.requested_bytes, pool, block.requested);
}

// Merges a neighbour in the same state (free or unmapped) into the block. Returns the neighbour's
// bytes, or 0.
std::int64_t CachingAllocator::Card::merge(BlockId into_id, BlockId other_id) {
  if (other_id == kNoBlock || blocks[other_id].state != blocks[into_id].state) return 0;
  Block& into = blocks[into_id];
  const Block other = blocks[other_id];
  if (other.state == State::free)
    erase_free(other_id);
  else
    shelf_of(other).unmapped.erase(other.address);
  if (into.previous == other_id) {
    move_start(into, other.address);
    into.previous = other.previous;
    if (into.previous != kNoBlock) blocks[into.previous].next = into_id;
  } else {
    into.next = other.next;
    if (into.next != kNoBlock) blocks[into.next].previous = into_id;
  }
  into.size += other.size;
  drop_block(other_id);
  return other.size;
}

BlockId CachingAllocator::Card::new_segment(std::uint32_t pool, StreamId stream,
                                            std::uint64_t address, std::int64_t size,
                                            std::uint32_t range) {
  Block block{.address = address, .size = size, .pool = pool, .stream = stream, .range = range};
  block.order = version.ties == TieRule::lowest_address ? address : next_order;
  next_order += version.ties == TieRule::oldest_segment ? static_cast<std::uint64_t>(size) : 1;
  return new_block(block);
}

BlockId CachingAllocator::Card::new_part(const Block& of, std::uint64_t address,
                                         std::int64_t size) {
  const bool by_age = version.ties == TieRule::oldest_block;
  return new_block({.address = address,
                    .size = size,
                    .pool = of.pool,
                    .stream = of.stream,
                    .range = of.range,
                    .order = by_age ? next_order++ : of.order + (address - of.address)});
}

void CachingAllocator::Card::move_start(Block& block, std::uint64_t address) const {
  if (version.ties != TieRule::oldest_block) block.order += address - block.address;
  block.address = address;
}

BlockId CachingAllocator::Card::new_block(const Block& block) {
  if (unused_blocks.empty()) {
    unused_blocks.push_back(static_cast<BlockId>(blocks.size()));
    blocks.emplace_back();
  }
  const BlockId id = unused_blocks.back();
  unused_blocks.pop_back();
  blocks[id] = block;
  ++pools[block.pool].blocks;
  return id;
}

void CachingAllocator::Card::drop_block(BlockId id) {
  blocks[id].state = State::unused;
  --pools[blocks[id].pool].blocks;
  unused_blocks.push_back(id);
  if (!streams_of_open_pools.empty()) streams_of_open_pools.erase(id);
}

void CachingAllocator::Card::insert_free(BlockId id) {
  Block& block = blocks[id];
  Pool& pool = pools[block.pool];
  block.state = State::free;
  block.searches_when_freed = pool.searches;
  pool.shelves.find(block.stream)->second.free.insert({block.size, block.order, id});
}

void CachingAllocator::Card::erase_free(BlockId id) {
  const Block& block = blocks[id];
  shelf_of(block).free.erase(detail::FreeBlocks::Entry{block.size, block.order, id});
}

}  // namespace headroom::allocator
