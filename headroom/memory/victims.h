// Which storages should leave a card so that a request fits: as few bytes as possible, and of equal
// ones those that are needed last.
//
// A caching allocator serves a request from one stretch of a segment, or from a new segment. So
// either neighbours leave that make a stretch together with what is free between them, or all of a
// few segments, which go back to the driver.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/memory/movable.h"

namespace headroom::memory {

struct CardNow {
  std::vector<allocator::SegmentInfo> segments;
  Bytes free;                     // of the driver, that this process may have
  Bytes large_segment{20 << 20};  // of requests between 1 and 10 MiB
};

struct WantedBlock {
  Bytes size;
  allocator::StreamId stream = 0;
};

// Indices of `movable`. Empty: the request fits already. std::nullopt: it does not fit even without
// all of them.
[[nodiscard]] std::optional<std::vector<std::size_t>> victims(const CardNow& card,
                                                              const std::vector<Movable>& movable,
                                                              const WantedBlock& wanted);

}  // namespace headroom::memory
