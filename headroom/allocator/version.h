// The constants of PyTorch's CUDA caching allocator for one version of PyTorch. They are all here,
// so that another version is another value of this struct and needs no other code.
//
// Sizes that a user can set are in Settings (settings.h), with that version's defaults.
#pragma once

#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::allocator {

struct Version {
  std::string_view torch;
  Bytes smallest_block;       // sizes are multiples of it, unless roundup_power2_divisions applies
  Bytes largest_small;        // rounded requests up to this are "small" and have pools of their own
  Bytes small_segment;        // size of a segment for small requests; also their page
  Bytes large_segment_below;  // rounded requests below this share segments of large_segment_size
  Bytes large_rounding;       // other requests get their own segment, rounded up to this
  Bytes largest_unsplit_rest;  // a large block is split only if more than this remains
  // Address space reserved for an expandable segment: capacity + capacity / this.
  int spare_address_divisor;
};

// The values of the torch 2.11.0 wheel; tests/oracle/ verifies each of them.
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
