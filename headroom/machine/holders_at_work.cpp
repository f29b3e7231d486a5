#include "headroom/machine/holders_at_work.h"

#include <algorithm>

namespace headroom::machine {
namespace {

// A training that published nothing for so long hangs, or has very long steps: then it is for the
// user to judge.
constexpr Seconds kStillFor{600.0};

const watch::JobStatus* stepping(const gpu::HolderReport& report,
                                 const std::vector<watch::JobStatus>& jobs, WallTime now) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const watch::JobStatus& job) {
    return report.process == ProcessIdentity{job.pid, job.start_ticks};
  });
  return found == jobs.end() || now - found->updated > kStillFor ? nullptr : &*found;
}

}  // namespace

std::vector<gpu::HolderReport> holders_of(const gpu::Machine& machine,
                                          const std::vector<watch::JobStatus>& jobs,
                                          const ProcessTable& processes, bool search_harder,
                                          WallTime now) {
  std::vector<gpu::HolderReport> all = gpu::explain_holders(machine, processes, search_harder);
  for (gpu::HolderReport& report : all) {
    const watch::JobStatus* const job = stepping(report, jobs, now);
    if (report.holder_class != gpu::HolderClass::orphan || job == nullptr) continue;
    report.holder_class = gpu::HolderClass::running;
    report.why = "it is at work without its launcher: " + job->what;
    if (job->step && job->steps)
      report.why += ", step " + std::to_string(*job->step) + " of " + std::to_string(*job->steps);
    report.action = "wait for its end, or kill -TERM " + std::to_string(job->pid) +
                    ": it saves a checkpoint first";
  }
  return all;
}

}  // namespace headroom::machine
