// Reads events in memory through the same interface as a file.
//
//   const auto trace = read_memory(recorder);
#pragma once

#include <memory>
#include <vector>

#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// Reads the events that the recorder holds now. The recorder must outlive the reader and record
// nothing meanwhile. Position and size count events, because there are no bytes.
[[nodiscard]] std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about = {});

// Reads a list of events, which must outlive the reader, as must their names.
[[nodiscard]] std::unique_ptr<Reader> read_events(const std::vector<Event>& events,
                                                  const Names& names, About about = {});

}  // namespace headroom::trace
