// Runs a command to a good end on a shared machine: waits for its place and reserves it, starts,
// watches, reports why it ended, and tries again with less after an out-of-memory, and after no
// other failure.
//
// The ladder after an out-of-memory: a smaller batch with the accumulation that keeps the effective
// batch; then a card with more room; then a wait for more. A bug is never tried again.
//
// Thread rule: everything happens in the calling thread, which also takes the signals over (see
// job.h). Make no other thread before.
//
//   Report report = supervise({.command = {"python", "train.py", "--batch-size", "64"},
//                              .maps = {"--batch-size=batch", "--accum=accumulation"}}, listener);
//   exit(report.exit_code);
#pragma once

#include "headroom/supervise/orders.h"
#include "headroom/supervise/run_report.h"

namespace headroom::supervise {

// Throws UsageError for orders that contradict each other or the command, InputError for mapped
// files.
[[nodiscard]] Report supervise(const Orders& orders, const Listener& listener);

}  // namespace headroom::supervise
