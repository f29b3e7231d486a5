// Requests to the allocator as a plain sequence, which replay, what-if and the tests play. The
// trace room produces it from a recorded trace, PyTorch's memory history, or a text.
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
    change_settings,  // id: index into the player's settings texts
    begin_pool,       // bytes: the pool's number
    end_pool,
    release_pool,
    nothing,  // an event without a request; keeps the numbering of a trace
  };
  static constexpr StreamId kAllStreams = ~StreamId{0};

  std::int64_t bytes = 0;
  std::uint32_t id = 0;  // identifies an allocation; ids count from 0 without large gaps
  StreamId stream = 0;
  Kind kind = Kind::nothing;
};

// Plays operations on one card and keeps the block of each id. A value, like the card: a copy is a
// fork.
class Player {
 public:
  explicit Player(CachingAllocator card, std::vector<std::string> settings_texts = {});

  // Returns false if an allocation was refused. The allocation then does not exist, and later uses
  // of its id have no effect. Throws UsageError for an id that is already live, and the card's
  // exceptions.
  bool play(const Operation& operation);
  // Plays all of them; returns the number of refused allocations.
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
