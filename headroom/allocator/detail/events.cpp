// Blocks that other streams use. Freeing such a block records an event on each of those streams.
// The block stays active until all events are complete, which the allocator notices at its next
// request.
#include <algorithm>
#include <iterator>

#include "headroom/allocator/detail/card_state.h"

namespace headroom::allocator {

namespace {

void add_once(std::vector<StreamId>& streams, StreamId stream) {
  const auto at = std::lower_bound(streams.begin(), streams.end(), stream);
  if (at == streams.end() || *at != stream) streams.insert(at, stream);
}

}  // namespace

void CachingAllocator::Card::record_stream(BlockId id, StreamId stream) {
  Block& block = allocated_block(id, "CachingAllocator::record_stream");
  if (stream == block.stream) return;
  add_once(other_streams[id], stream);
  block.used_elsewhere = true;
  if (is_capturing()) add_once(streams_of_open_pools[id], stream);
}

void CachingAllocator::Card::record_events(BlockId id) {
  const auto row = other_streams.find(id);
  for (const StreamId stream : row->second) {
    queues[stream].blocks.push_back(id);
    ++blocks[id].events;
  }
  other_streams.erase(row);
  blocks[id].used_elsewhere = false;
}

// Processes frees that came while a private pool was open. Streams recorded during that time have
// no pending work: the end of a graph capture joins them.
void CachingAllocator::Card::record_deferred_events() {
  for (const BlockId id : deferred_frees) {
    if (const auto row = streams_of_open_pools.find(id); row != streams_of_open_pools.end()) {
      std::erase_if(other_streams[id], [&](StreamId stream) {
        return std::binary_search(row->second.begin(), row->second.end(), stream);
      });
      streams_of_open_pools.erase(row);
    }
    record_events(id);
    if (blocks[id].events == 0) make_free(id);
  }
  deferred_frees.clear();
}

void CachingAllocator::Card::process_events() {
  record_deferred_events();
  for (auto at = queues.begin(); at != queues.end();) {
    EventQueue& queue = at->second;
    if (event_rule == EventRule::at_once) queue.done = queue.blocks.size();
    for (; queue.done > 0; --queue.done) {
      finish_event(queue.blocks.front());
      queue.blocks.pop_front();
    }
    at = queue.blocks.empty() ? queues.erase(at) : std::next(at);
  }
}

void CachingAllocator::Card::synchronize_all() {
  ++statistics.num_sync_all_streams;
  record_deferred_events();
  for (const auto& [stream, queue] : queues)
    for (const BlockId id : queue.blocks) finish_event(id);
  queues.clear();
}

void CachingAllocator::Card::finish_event(BlockId id) {
  if (--blocks[id].events == 0) make_free(id);
}

void CachingAllocator::Card::complete_events(StreamId stream) {
  if (const auto found = queues.find(stream); found != queues.end())
    found->second.done = found->second.blocks.size();
}

}  // namespace headroom::allocator
