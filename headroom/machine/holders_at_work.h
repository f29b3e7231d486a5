// The holders of memory on the cards (gpu/holders.h), with Headroom's knowledge of its own
// trainings: one that steps is at work, although a shell that has ended started it.
#pragma once

#include <vector>

#include "headroom/gpu/holders.h"
#include "headroom/watch/job_status.h"

namespace headroom::machine {

[[nodiscard]] std::vector<gpu::HolderReport> holders_of(
    const gpu::Machine& machine, const std::vector<watch::JobStatus>& jobs,
    const ProcessTable& processes, bool search_harder,
    WallTime now = std::chrono::system_clock::now());

}  // namespace headroom::machine
