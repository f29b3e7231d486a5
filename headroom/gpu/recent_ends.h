// On which cards something ended in the last 10 seconds, as far as anybody looked.
//
// A short command has no past of its own, so each decision leaves the list of the processes it saw
// in the state folder, and the next one compares. An end that one noticed is known to the next for
// 10 s. Nothing is lost if that file cannot be written: the next decision merely knows less.
#pragma once

#include <set>

#include "headroom/base/process.h"
#include "headroom/gpu/card.h"

namespace headroom::gpu {

inline constexpr Seconds kRecent{10.0};

// Compares with what was last written (if that was in the last 10 s) and writes what is there now,
// with the ends that are still recent.
[[nodiscard]] std::set<Uuid> note_processes(const Machine& machine,
                                            const ProcessTable& processes = ProcessTable());

}  // namespace headroom::gpu
