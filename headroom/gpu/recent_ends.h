// The cards on which a process ended in the last 10 seconds, as far as earlier commands looked.
//
// A short command has no history of its own, so each decision writes the list of processes it saw
// to the state folder, and the next one compares. An end that one decision notices stays known for
// 10 s. A failed write is harmless: the next decision only knows less.
#pragma once

#include <set>

#include "headroom/base/process.h"
#include "headroom/gpu/machine.h"

namespace headroom::gpu {

inline constexpr Seconds kRecent{10.0};

// Compares with the last list (if written in the last 10 s), then writes the present list with the
// ends that are still recent.
[[nodiscard]] std::set<Uuid> note_processes(const Machine& machine,
                                            const ProcessTable& processes = ProcessTable());

}  // namespace headroom::gpu
