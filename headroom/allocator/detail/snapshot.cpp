#include <algorithm>
#include <utility>

#include "headroom/allocator/detail/card_state.h"

namespace headroom::allocator {

BlockInfo CachingAllocator::Card::describe(const Block& block) const {
  const auto state = block.state == State::allocated  ? BlockInfo::State::allocated
                     : block.state == State::awaiting ? BlockInfo::State::awaiting_free
                                                      : BlockInfo::State::free;
  return {block.address, Bytes{block.size}, Bytes{block.requested}, block.stream, state};
}

std::vector<SegmentInfo> CachingAllocator::Card::snapshot() const {
  const auto is_mapped = [&](BlockId id) {
    return id != kNoBlock && blocks[id].state != State::unmapped;
  };
  std::vector<SegmentInfo> segments;
  for (const Block& head : blocks) {
    if (head.state == State::unused || head.state == State::unmapped || is_mapped(head.previous))
      continue;
    SegmentInfo segment{.address = head.address,
                        .size = {},
                        .stream = head.stream,
                        .is_large = !pools[head.pool].is_small,
                        .is_expandable = head.is_expandable(),
                        .pool = pools[head.pool].owner,
                        .blocks = {describe(head)}};
    for (BlockId id = head.next; is_mapped(id); id = blocks[id].next)
      segment.blocks.push_back(describe(blocks[id]));
    for (const BlockInfo& block : segment.blocks) segment.size += block.size;
    segments.push_back(std::move(segment));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return segments;
}

}  // namespace headroom::allocator
