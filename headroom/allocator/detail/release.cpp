// Returning memory to the driver: old blocks (garbage collection), just enough for one request
// (release_available), or all that is free (release_cached).
#include <algorithm>
#include <utility>

#include "headroom/allocator/detail/card_state.h"

namespace headroom::allocator {

// Releases free large blocks that do not share a segment, in rounds until enough is released. Each
// round releases the blocks whose age is at least the mean. A block's age is the number of searches
// since it was freed.
void CachingAllocator::Card::collect_garbage() {
  const auto threshold =
      static_cast<std::int64_t>(collection_threshold * static_cast<double>(*limit));
  const std::int64_t reserved = statistics.reserved_bytes.all.current;
  if (reserved <= threshold) return;
  const std::int64_t wanted = reserved - threshold;

  const Pool& pool = pools[kLargePool];
  const auto age_of = [&](const Block& block) { return pool.searches - block.searches_when_freed; };
  std::vector<BlockId> candidates;
  std::int64_t total_age = 0, count = 0;
  for (const auto& [stream, shelf] : pool.shelves)
    for (auto at = shelf.free.first(); at; at = shelf.free.next(at)) {
      const BlockId id = shelf.free.at(at).block;
      if (blocks[id].is_split()) continue;
      total_age += age_of(blocks[id]);
      ++count;
      if (!blocks[id].is_expandable()) candidates.push_back(id);
    }

  std::int64_t reclaimed = 0;
  for (bool freed_any = true; reclaimed < wanted && freed_any && count > 0;) {
    const double mean_age = static_cast<double>(total_age) / static_cast<double>(count);
    freed_any = false;
    std::vector<BlockId> younger;
    for (const BlockId id : candidates) {
      const std::int64_t age = age_of(blocks[id]);
      if (static_cast<double>(age) < mean_age) {
        younger.push_back(id);
        continue;
      }
      freed_any = true;
      reclaimed += blocks[id].size;
      total_age -= age;
      --count;
      release_segment(id);
    }
    candidates = std::move(younger);
  }
}

// Only with a max_split_size. Releases oversize blocks of the request's own pool and stream: one
// that is large enough, or else several, beginning with the largest. True: released as much as the
// request needs.
bool CachingAllocator::Card::release_available(const Request& request) {
  if (max_split_size == kNoLimit) return false;
  detail::FreeBlocks& free_blocks = pools[request.pool].shelves[request.stream].free;
  const std::int64_t needed = std::max(request.size, max_split_size);
  const auto block_at = [&](auto at) { return free_blocks.at(at).block; };
  auto at = free_blocks.first_at_least(needed);
  if (at && !blocks[block_at(at)].is_expandable()) {
    if (blocks[block_at(at)].is_split()) {
      met_fault = true;  // 2.11 would release a part of a segment
      return false;
    }
    release_segment(block_at(at));
    return true;
  }
  std::int64_t released = 0;
  std::vector<BlockId> to_release;
  for (at = at ? free_blocks.previous(at) : free_blocks.last();
       at && released < needed && free_blocks.at(at).size >= max_split_size;
       at = free_blocks.previous(at)) {
    const Block& block = blocks[block_at(at)];
    if (block.is_expandable()) continue;
    if (block.is_split()) {
      met_fault = true;
      continue;
    }
    released += block.size;
    to_release.push_back(block_at(at));
  }
  for (const BlockId id : to_release) release_segment(id);
  return released >= needed;
}

// Releases all segments that are entirely free; while a private pool is open, only those of
// released private pools.
void CachingAllocator::Card::release_cached() {
  if (!is_capturing()) {
    synchronize_all();
    release_pool_blocks(kLargePool);
    release_pool_blocks(kSmallPool);
  }
  drop_empty_pools();
}

void CachingAllocator::Card::release_pool_blocks(std::uint32_t pool) {
  std::vector<BlockId> segments, pages;
  for (const auto& [stream, shelf] : pools[pool].shelves)
    for (auto at = shelf.free.first(); at; at = shelf.free.next(at)) {
      const BlockId id = shelf.free.at(at).block;
      if (blocks[id].is_expandable())
        pages.push_back(id);
      else if (!blocks[id].is_split())
        segments.push_back(id);
    }
  for (const BlockId id : segments) release_segment(id);
  for (const BlockId id : pages) {
    unmap(id);
    if (!blocks[id].is_split() && blocks[id].state == State::unmapped) drop_range(id);
  }
}

void CachingAllocator::Card::release_segment(BlockId id) {
  const Block block = blocks[id];
  ++statistics.num_device_free;
  tell(AllocatorEvent::Kind::segment_free, block.address, block.size, block.stream, block.pool);
  driver.give_segment(block.address, block.size);
  count_driver_call(block.pool, -1);
  decrease(statistics.segment, block.pool, 1);
  decrease(statistics.reserved_bytes, block.pool, block.size);
  if (block.size >= max_split_size) statistics.oversize_segments.decrease(1);
  erase_free(id);
  drop_block(id);
}

}  // namespace headroom::allocator
