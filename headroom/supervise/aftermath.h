// What is known of a job at its out-of-memory, put together for the report (oom/forensics.h).
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "headroom/oom/forensics.h"
#include "headroom/supervise/history.h"
#include "headroom/supervise/next_batch.h"
#include "headroom/supervise/usage.h"

namespace headroom::supervise {

// `pids` are all processes that the job ever had; the last of `tried`, and of their records, is the
// one that ran out.
[[nodiscard]] oom::Forensics aftermath(const oom::Judgement& judgement, const Usage& usage,
                                       const std::set<pid_t>& pids, const std::vector<Tried>& tried,
                                       const std::vector<TryRecord>& records);

}  // namespace headroom::supervise
