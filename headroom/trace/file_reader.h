// Headroom's own format (docs/formats/trace.md), written by file_writer.h.
//
// A file that just ends within a part was being written, or its writer was killed: what is whole is
// read, and cut_off() tells the rest. A file that is damaged ends in InputError.
#pragma once

#include <memory>

#include "headroom/trace/input.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// Reads the head. Throws InputError when it is not whole, damaged, or of a later format.
[[nodiscard]] std::unique_ptr<Reader> read_trace_file(Input input);

// Whether a file that begins so is one, or would be if it went on.
[[nodiscard]] bool begins_trace_file(std::string_view begin);

}  // namespace headroom::trace
