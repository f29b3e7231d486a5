// Reads events that are already in memory through the same interface as a file.
//
//   const auto trace = read_memory(recorder);
#pragma once

#include <memory>
#include <vector>

#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// Position and size count events, because there are no bytes.
[[nodiscard]] std::unique_ptr<Reader> read_memory(std::vector<Event> events, Names names,
                                                  About about = {});

// Reads the events that the recorder holds now. The recorder must outlive the reader and record
// nothing meanwhile.
[[nodiscard]] std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about = {});

}  // namespace headroom::trace
