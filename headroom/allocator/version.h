// The numbers in the rules of PyTorch's CUDA caching allocator, for one version of PyTorch. They
// all stand here, so that another version is another value and not another program.
//
// Sizes that a user can set are in Settings (settings.h), with that version's defaults.
#pragma once

#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::allocator {

struct Version {
  std::string_view torch;
  Bytes smallest_block;       // every size is a multiple of it, if not rounded to parts of a power
  Bytes largest_small;        // rounded requests up to it are "small": they have pools of their own
  Bytes small_segment;        // what is taken from the driver for small requests; also their page
  Bytes large_segment_below;  // rounded requests below it share segments of large_segment_size
  Bytes large_rounding;       // those at or above it get a segment of their own, rounded up to this
  Bytes largest_unsplit_rest;  // a large block is split only when more than this is left over
  // Address space reserved for an expandable segment: capacity plus capacity / this.
  int spare_address_divisor;
};

// As in the wheel of torch 2.11.0, where each of them was tried (tests/oracle/).
inline constexpr Version kTorch211{
    .torch = "2.11",
    .smallest_block = Bytes{512},
    .largest_small = Bytes{1 << 20},
    .small_segment = Bytes{2 << 20},
    .large_segment_below = Bytes{10 << 20},
    .large_rounding = Bytes{2 << 20},
    .largest_unsplit_rest = Bytes{1 << 20},
    .spare_address_divisor = 8,
};

}  // namespace headroom::allocator
