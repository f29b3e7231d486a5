// Events that are in memory already, read like a file.
//
//   const auto trace = read_memory(recorder);
#pragma once

#include <memory>
#include <vector>

#include "headroom/trace/reader.h"
#include "headroom/trace/recorder.h"

namespace headroom::trace {

// Position and size count events, as there are no bytes.
[[nodiscard]] std::unique_ptr<Reader> read_memory(std::vector<Event> events, Names names,
                                                  About about = {});

// What the recorder holds now. It must live as long, and record nothing meanwhile.
[[nodiscard]] std::unique_ptr<Reader> read_memory(const Recorder& recorder, About about = {});

}  // namespace headroom::trace
