// The tensors and instants of a timeline as the text that a page's script reads: columns of
// varints, compressed with gzip and written in base64.
//
//   0  born     of each tensor, by birth: its instant less the one before
//   1  life     died less born; 0: lives to the end
//   2  bytes    as requested
//   3  rounding of its block
//   4  origin   index into the page's list
//   5  event    of each instant: the number of its event less the one before
//   6  reserved where it changes: instant less the one before, difference (zigzag)
//   7  time     samples: instant less the one before, nanoseconds less the one before
//   8  segments at the peak: address less the one before, size, stream, pool, 1 if expandable,
//               number of blocks
//   9  blocks   of these segments: size, index of the tensor plus 1; 0: free
#pragma once

#include <string>
#include <string_view>

#include "headroom/page/timeline.h"

namespace headroom::page::detail {

[[nodiscard]] std::string page_columns(const Timeline& timeline);

[[nodiscard]] std::string base64(std::string_view bytes);
[[nodiscard]] std::string gzipped(std::string_view bytes);

}  // namespace headroom::page::detail
