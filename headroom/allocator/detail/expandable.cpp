// Expandable segments. Each stream and pool has one address range, larger than the card. Memory is
// mapped into it page by page, so that a free block at its end can grow instead of being left over.
#include <algorithm>

#include "headroom/allocator/detail/card_state.h"

namespace headroom::allocator {

// Maps pages to get a free block of at least the request's size; kNoBlock if the card has too
// little memory. Pages mapped before that failure stay mapped.
BlockId CachingAllocator::Card::grow(const Request& request) {
  // The block begins a chain of free and unmapped blocks that together are long enough.
  BlockId id = find_room(request);
  if (id == kNoBlock) return kNoBlock;
  if (blocks[id].state == State::unmapped && !map(id, std::min(blocks[id].size, request.size)))
    return kNoBlock;
  while (blocks[id].size < request.size) {
    const BlockId next = blocks[id].next;
    if (next == kNoBlock) return kNoBlock;  // larger than the range, and so than the card
    if (!map(next, std::min(request.size - blocks[id].size, blocks[next].size))) return kNoBlock;
    id = next;  // mapping merged the two
  }
  erase_free(id);
  return id;
}

// The lowest address with enough vacant space after it, in an existing range or a new one.
BlockId CachingAllocator::Card::find_room(const Request& request) {
  const auto is_vacant = [&](BlockId id) { return id != kNoBlock && blocks[id].is_vacant(); };
  for (const auto& [address, unmapped] : pools[request.pool].shelves[request.stream].unmapped) {
    const BlockId before = blocks[unmapped].previous;
    const BlockId start = is_vacant(before) ? before : unmapped;
    std::int64_t room = 0;
    for (BlockId id = start; room < request.size && is_vacant(id); id = blocks[id].next)
      room += blocks[id].size;
    if (room >= request.size) return start;
  }
  return new_range(request);
}

// As expandable_segments_reserve has it.
std::optional<std::int64_t> CachingAllocator::Card::address_reserve() const {
  const auto& reserve = settings.expandable_segments_reserve;
  if (!reserve) return {};
  const double unit = reserve->is_share ? static_cast<double>(driver.capacity()) : 1 << 30;
  return static_cast<std::int64_t>(std::min(reserve->value * unit, 0x1p62));
}

BlockId CachingAllocator::Card::new_range(const Request& request) {
  Pool& pool = pools[request.pool];
  const std::int64_t page = pool.is_small ? version.small_segment.count : large_segment;
  const std::int64_t most = driver.capacity() + driver.capacity() / version.spare_address_divisor;
  const std::int64_t wanted = std::min(most, address_reserve().value_or(most));
  const std::int64_t size = (wanted + page - 1) / page * page;
  if (size < request.size && !version.tries_beyond_range) return kNoBlock;
  const std::uint64_t address = driver.take_range(size);
  const auto unused = std::find_if(ranges.begin(), ranges.end(),
                                   [](const Range& other) { return other.size == 0; });
  const auto range = static_cast<std::uint32_t>(unused - ranges.begin());
  if (unused == ranges.end()) ranges.emplace_back();
  ranges[range] = {address, size, page};
  const BlockId id = new_segment(request.pool, request.stream, address, size, range);
  blocks[id].state = State::unmapped;
  pool.shelves[request.stream].unmapped.emplace(address, id);
  return id;
}

// Maps memory for the first `size` bytes of an unmapped block, rounded up to whole pages, and
// merges the result with free neighbours. False: not enough memory is left.
bool CachingAllocator::Card::map(BlockId id, std::int64_t size) {
  const std::int64_t page = ranges[blocks[id].range].page;
  const std::int64_t mapped = (size + page - 1) / page * page;
  if (!driver.take_memory(mapped)) return false;
  const std::uint64_t address = blocks[id].address;
  const std::uint32_t pool = blocks[id].pool;
  const StreamId stream = blocks[id].stream;
  auto& unmapped = shelf_of(blocks[id]).unmapped;
  unmapped.erase(address);
  if (mapped < blocks[id].size) {
    const BlockId rest_id = new_part(blocks[id], address + static_cast<std::uint64_t>(mapped),
                                     blocks[id].size - mapped);
    Block& block = blocks[id];
    Block& rest = blocks[rest_id];
    rest.state = State::unmapped;
    rest.previous = id;
    rest.next = block.next;
    if (rest.next != kNoBlock) blocks[rest.next].previous = rest_id;
    block.next = rest_id;
    block.size = mapped;
    unmapped.emplace(rest.address, rest_id);
  }
  blocks[id].state = State::free;
  merge(id, blocks[id].previous);
  merge(id, blocks[id].next);
  insert_free(id);
  increase(statistics.reserved_bytes, pool, mapped);
  ++statistics.num_device_alloc;
  tell(AllocatorEvent::Kind::segment_map, address, mapped, stream, pool);
  return true;
}

// Unmaps the whole pages inside a free block; the partial pages at its ends stay mapped and free.
void CachingAllocator::Card::unmap(BlockId id) {
  const Block whole = blocks[id];
  const Range& range = ranges[whole.range];
  const auto offset = static_cast<std::int64_t>(whole.address - range.address);
  const std::int64_t begin = (offset + range.page - 1) / range.page * range.page;
  const std::int64_t end = (offset + whole.size) / range.page * range.page;
  if (begin >= end) return;
  complete_events(whole.stream);  // the driver first waits for the stream
  driver.give_memory(end - begin);
  erase_free(id);

  const auto cut = [&](std::int64_t from, std::int64_t size) {
    return new_part(whole, range.address + static_cast<std::uint64_t>(from), size);
  };
  if (begin > offset) {
    const BlockId piece = cut(offset, begin - offset);
    blocks[piece].previous = whole.previous;
    blocks[piece].next = id;
    if (whole.previous != kNoBlock) blocks[whole.previous].next = piece;
    blocks[id].previous = piece;
    insert_free(piece);
  }
  if (end < offset + whole.size) {
    const BlockId piece = cut(end, offset + whole.size - end);
    blocks[piece].previous = id;
    blocks[piece].next = whole.next;
    if (whole.next != kNoBlock) blocks[whole.next].previous = piece;
    blocks[id].next = piece;
    insert_free(piece);
  }
  const std::uint64_t address = range.address + static_cast<std::uint64_t>(begin);
  move_start(blocks[id], address);
  blocks[id].size = end - begin;
  blocks[id].state = State::unmapped;
  merge(id, blocks[id].previous);
  merge(id, blocks[id].next);
  shelf_of(blocks[id]).unmapped.emplace(blocks[id].address, id);
  decrease(statistics.reserved_bytes, whole.pool, end - begin);
  count_driver_call(whole.pool, -1);
  ++statistics.num_device_free;
  tell(AllocatorEvent::Kind::segment_unmap, address, end - begin, whole.stream, whole.pool);
}

// Drops a range in which nothing is mapped; the next request reserves a new one.
void CachingAllocator::Card::drop_range(BlockId id) {
  const Block& block = blocks[id];
  shelf_of(block).unmapped.erase(block.address);
  ranges[block.range] = Range{};
  drop_block(id);
}

}  // namespace headroom::allocator
