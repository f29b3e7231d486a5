// The differences between the CUDA caching allocators of PyTorch's versions, as data: another
// version is another value of this struct. Options that came with a version say so in settings.cpp.
//
// Sizes that a user can set are in Settings (settings.h).
#pragma once

#include <span>
#include <string_view>

#include "headroom/base/bytes.h"

namespace headroom::allocator {

// The choice among several free blocks of equal size.
enum class TieRule {
  lowest_address,
  oldest_block,    // a split makes the front part new; the rest stays the old block
  oldest_segment,  // within one, the lowest address
};

// How the text of a refusal ends while expandable segments are on. Without them, it advises them.
enum class RefusalEnd { advises_expandable_segments, bare, speaks_of_address_space };

struct Version {
  int minor;  // 11: PyTorch 2.11
  std::string_view torch;
  Bytes smallest_block;       // sizes are multiples of it, unless roundup_power2_divisions applies
  Bytes largest_small;        // rounded requests up to this are "small" and have pools of their own
  Bytes small_segment;        // size of a segment for small requests; also their page
  Bytes large_segment_below;  // rounded requests below this share segments of large_segment_size
  Bytes large_rounding;       // other requests get their own segment, rounded up to this
  Bytes largest_unsplit_rest;  // a large block is split only if more than this remains
  // Address space reserved for an expandable segment: capacity + capacity / this.
  int spare_address_divisor;
  // Whether a request that is larger than that makes an expandable segment, and fails only then.
  bool tries_beyond_range;
  // Whether every open private pool counts as the capture of a CUDA graph. During a capture, blocks
  // that other streams use stay active, and a request that finds no memory releases none.
  bool pools_are_captures;
  // Whether the process's share of the card, a fraction of its bytes, is rounded to the nearest
  // byte instead of down. 0.69 of 1,100 segments is 759 segments only then: in floating point, it
  // is less.
  bool rounds_fraction;
  TieRule ties;
  RefusalEnd refusal_end;
};

// All that are modelled, oldest first. tests/oracle/ verifies each against its wheel.
[[nodiscard]] std::span<const Version> versions();

// "2.15", or a whole version such as "2.15.0+cu132". Throws UsageError if it is not modelled.
[[nodiscard]] const Version& version_named(std::string_view torch);

// The PyTorch that this Headroom was built with; without the engine, 2.11.
[[nodiscard]] const Version& default_version();

}  // namespace headroom::allocator
