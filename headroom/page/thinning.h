// A timeline with fewer instants, for a picture of a long trace. Every figure at the kept instants
// stays exact, and no peak is lost.
//
//   const Timeline thin = thinned(timeline, {.instants = 100'000});
#pragma once

#include "headroom/page/timeline.h"

namespace headroom::page {

struct Thinning {
  // About this many instants stay: of each stretch the first, the lowest, the highest in
  // `allocated` and in `reserved`, and the last; and those of the first refusals.
  Instant instants = 0;
  // Tensors of one origin and one life become one entry with their sum. For traces in which more
  // tensors live than a page can hold, as with a leak; the allocator's segments are then left out.
  bool merges = false;
};

// Refusals that keep their instants.
inline constexpr std::size_t kRefusalsKept = 500;

[[nodiscard]] Timeline thinned(const Timeline& timeline, const Thinning& thinning);

}  // namespace headroom::page
