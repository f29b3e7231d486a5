// The CSV of `headroom log`: one line a card and sample, with nvidia-smi's column names, so that
// what reads its logs reads ours. Unknown is an empty field.
#pragma once

#include <string>

#include "headroom/gpu/card.h"

namespace headroom::watch {

// timestamp,index,name,utilization.gpu [%],utilization.memory [%],memory.used [MiB],memory.free
// [MiB] and with processes also pid,process,process.used [MiB].
[[nodiscard]] std::string csv_header(bool processes);

// With processes a card has one line for each of them (and one with empty fields if it has none).
// A card whose data is older than kFreshFor keeps its line, with empty figures.
[[nodiscard]] std::string csv_rows(const gpu::Machine& machine, WallTime when, bool processes,
                                   Clock::time_point now = Clock::now());

// Quoted only where needed (RFC 4180).
[[nodiscard]] std::string csv_field(std::string_view text);

}  // namespace headroom::watch
