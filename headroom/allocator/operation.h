// What a program asks of the allocator, one after the other: the plain stream that replay, what-if
// and the tests feed to it. Where it comes from (a recorded trace, PyTorch's memory history, a
// text) is the trace room's matter.
//
//   Player player(CachingAllocator({.capacity = 24_GiB}));
//   for (const Operation& operation : operations) player.play(operation);
//   const Statistics& result = player.card().statistics();
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headroom/allocator/caching_allocator.h"

namespace headroom::allocator {

struct Operation {
  enum class Kind : std::uint8_t {
    allocate,         // id, bytes, stream
    free,             // id
    record_stream,    // id, stream
    complete_events,  // stream, or kAllStreams
    empty_cache,
    reset_peaks,
    change_settings,  // id: index into the texts given to the player
    begin_pool,       // bytes: the pool's number
    end_pool,
    release_pool,
    nothing,  // an event that asks nothing; keeps the numbering of a trace
  };
  static constexpr StreamId kAllStreams = ~StreamId{0};

  std::int64_t bytes = 0;
  std::uint32_t id = 0;  // names an allocation; ids are numbered from 0 without large gaps
  StreamId stream = 0;
  Kind kind = Kind::nothing;
};

// Plays operations to one card and keeps which id has which block. A value, like the card: a copy
// is a fork.
class Player {
 public:
  explicit Player(CachingAllocator card, std::vector<std::string> settings_texts = {});

  // False: an allocation was refused. It counts as not made, and its later uses as nothing.
  // Throws UsageError for an id that is live already, and what the card throws.
  bool play(const Operation& operation);
  // All of them; answers how many allocations were refused.
  std::uint64_t play(std::span<const Operation> operations);

  [[nodiscard]] CachingAllocator& card() { return card_; }
  [[nodiscard]] const CachingAllocator& card() const { return card_; }
  // kNoBlock: not allocated, or freed.
  [[nodiscard]] BlockId block_of(std::uint32_t id) const;

 private:
  CachingAllocator card_;
  std::vector<std::string> settings_texts_;
  std::vector<BlockId> blocks_;  // by id
};

}  // namespace headroom::allocator
