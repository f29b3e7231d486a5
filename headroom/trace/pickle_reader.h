// PyTorch's memory snapshots: reads the pickle that torch.cuda.memory._dump_snapshot and LibTorch
// write, without Python (docs/formats/snapshot.md).
//
//   const auto trace = read_pickle(Input::file("snapshot.pickle"));
//   for (Event event; trace->next(event);) ...
//
// The history in a snapshot is a window that begins when the program already holds memory. The
// reader first returns events that create this initial state, at the time of the first recorded
// event, so that all events together can be replayed. It merges the devices by time. It reads the
// whole file at once into values that take 1 to 4 times the file's size, and never runs code from
// the file.
#pragma once

#include <memory>
#include <string_view>

#include "headroom/trace/input.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// Decides by the first byte, which is the same in all pickles of protocol 2 and later. No line of
// plain events begins with it.
[[nodiscard]] bool begins_pickle(std::string_view begin);

// Throws InputError.
[[nodiscard]] std::unique_ptr<Reader> read_pickle(Input input);

}  // namespace headroom::trace
