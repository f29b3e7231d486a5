// The card that the model stands for: its size, and how its driver and its streams behave.
#pragma once

#include <cstdint>

#include "headroom/allocator/settings.h"
#include "headroom/allocator/version.h"
#include "headroom/base/bytes.h"

namespace headroom::allocator {

// More than any card has. About twenty address ranges of this size fit below 2^53, above which
// viewers written in JavaScript round.
inline constexpr Bytes kUnlimited{std::int64_t{1} << 48};

// When another stream's work on a block counts as done.
enum class EventRule {
  at_once,    // when the event is recorded; the allocator notices at its next request
  when_told,  // when complete_events is called, or the allocator itself waits for the stream
};

// The order in which the driver hands out addresses. It only decides between free blocks of equal
// size.
enum class AddressPolicy {
  ascending,   // above all earlier addresses; never reused
  descending,  // below all earlier addresses
  lowest,      // the lowest gap that is large enough
};

struct CardOptions {
  Bytes capacity = kUnlimited;  // the driver gives exactly this much in total
  Settings settings = {};       // per_process_memory_fraction applies from the start
  EventRule events = EventRule::at_once;
  AddressPolicy addresses = AddressPolicy::ascending;
  Version version = default_version();
};

}  // namespace headroom::allocator
