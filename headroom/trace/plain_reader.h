// The plain format: text with one event per line, which a person or a script can write
// (docs/formats/plain-events.md).
//
//   a 1 1048576      # allocation 1, of 1 MiB, on stream 0
//   a 2 4096 7       # on stream 7, which becomes number 1: the first other stream that appears
//   f 1
//
// The reader does not check that a freed allocation exists.
#pragma once

#include <memory>

#include "headroom/trace/input.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// A longer line means that the file is not a trace.
inline constexpr std::size_t kLongestLine = std::size_t{64} << 10;

[[nodiscard]] std::unique_ptr<Reader> read_plain(Input input);

}  // namespace headroom::trace
