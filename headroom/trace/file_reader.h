// Reads Headroom's own format (docs/formats/trace.md), which file_writer.h writes.
//
// A file that ends within a part is still being written, or its writer was killed: the reader
// returns all whole parts, and cut_off() returns how many bytes it left out. A damaged file ends in
// InputError.
#pragma once

#include <memory>

#include "headroom/trace/input.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// Reads the head at once. Throws InputError if it is incomplete, damaged, or of a later format.
[[nodiscard]] std::unique_ptr<Reader> read_trace_file(Input input);

// True if `begin` is the beginning of such a file, or a prefix of that beginning.
[[nodiscard]] bool begins_trace_file(std::string_view begin);

}  // namespace headroom::trace
