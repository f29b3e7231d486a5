// The CSV of `headroom log`: one line per card and sample. Column names are nvidia-smi's, so that
// tools written for its logs can read these. An unknown value is an empty field.
#pragma once

#include <string>

#include "headroom/gpu/machine.h"

namespace headroom::watch {

// timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],memory.free
// [MiB]; with `processes`, also pid,process,process.used [MiB].
[[nodiscard]] std::string csv_header(bool processes);

// With `processes`, a card has one line per process, or one line with empty process fields if it
// has none. A card whose data is older than kFreshFor keeps its line, with empty figures.
[[nodiscard]] std::string csv_rows(const gpu::Machine& machine, WallTime when, bool processes,
                                   Clock::time_point now = Clock::now());

}  // namespace headroom::watch
