// Finds the lease that the memory of a process belongs to.
//
// Goes from the process up through its ancestors to the first one that holds a lease's descriptor
// or made a lease. If that could mean two leases, or if nothing is visible (another user's
// descriptors, another PID namespace), the memory belongs to no lease: it counts as a stranger's,
// and the lease counts as unused. That promises too little and never too much.
//
// Sessions and process groups do not count: other programs of the shell that started a job are not
// part of the job.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/machine.h"
#include "headroom/lease/lease.h"

namespace headroom::lease {

// Memory of a card that each lease's processes use; a missing lease uses none.
using UsedByLease = std::map<std::string, Bytes>;
// The leases of processes on cards; a missing one belongs to none.
using LeaseOfProcess = std::map<std::pair<pid_t, gpu::Uuid>, std::string>;

class Attribution {
 public:
  // Caches facts about processes: make a new one for each look at the machine.
  explicit Attribution(const std::vector<Claim>& leases, ProcessTable processes = ProcessTable());

  // The identifier of the lease that the process belongs to on this card, or "" if there is none.
  [[nodiscard]] std::string lease_of(const gpu::GpuProcess& process, const gpu::Uuid& card);

  // std::nullopt if the card's process list is older than its memory.
  [[nodiscard]] std::optional<UsedByLease> used_on(const gpu::Card& card);

  // Those that used_on() has found so far.
  [[nodiscard]] const LeaseOfProcess& found() const { return found_; }

 private:
  // Positions of the leases that the process itself holds or made.
  const std::vector<std::size_t>& own_leases(const ProcessIdentity& process);
  const std::optional<ProcessStat>& stat_of(pid_t pid);

  const std::vector<Claim>& leases_;
  const ProcessTable processes_;
  std::map<ProcessIdentity, std::vector<std::size_t>> own_;
  std::map<pid_t, std::optional<ProcessStat>> stats_;  // jobs share their ancestors
  LeaseOfProcess found_;
};

// The processes that hold each lease's descriptor, if this user may see them. Reads every process
// of the machine.
[[nodiscard]] std::map<std::string, std::vector<pid_t>> descriptor_holders(
    const std::vector<Claim>& leases, const ProcessTable& processes = ProcessTable());

}  // namespace headroom::lease
