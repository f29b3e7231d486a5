// Reads the events of a recorder through the same interface as a file.
//
//   const auto trace = read_memory(recorder);
#pragma once

#include <memory>

#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// Reads the events that the recorder holds now. The recorder must outlive the reader and record
// nothing meanwhile. Position and size count events, because there are no bytes.
[[nodiscard]] std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about = {});

}  // namespace headroom::trace
