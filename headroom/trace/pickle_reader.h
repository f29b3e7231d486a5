// PyTorch's memory snapshots: the pickle that torch.cuda.memory._dump_snapshot and LibTorch write,
// read without Python (docs/formats/snapshot.md).
//
//   const auto trace = read_pickle(Input::file("snapshot.pickle"));
//   for (Event event; trace->next(event);) ...
//
// The history in such a file is a window: it begins when programs have allocated already. What was
// there comes first, as events at the time of the first recorded one, so that all events together
// can be replayed. Devices are merged by time. The whole file is read at once and held as values,
// 1 to 4 times its size; nothing in it is run.
#pragma once

#include <memory>
#include <string_view>

#include "headroom/trace/input.h"
#include "headroom/trace/reader.h"

namespace headroom::trace {

// Told by the first byte: protocol 2 and later say so, older ones begin with a dict or list, which
// no line of plain events does.
[[nodiscard]] bool begins_pickle(std::string_view begin);

// Throws InputError.
[[nodiscard]] std::unique_ptr<Reader> read_pickle(Input input);

}  // namespace headroom::trace
