// Whose lease the memory of a process belongs to.
//
// Of a process and its ancestors, the first that has to do with leases decides: it holds a lease's
// descriptor, or it is the process that asked for one. If that leaves a choice between two leases,
// or if nothing can be seen (another user's descriptors, another PID namespace), the memory is
// nobody's: it counts as a stranger's, and the lease as not yet used. That promises too little, and
// never too much.
//
// Deliberately not asked: sessions and process groups. What else runs in the shell that a job was
// started from is not the job's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/base/process.h"
#include "headroom/gpu/card.h"
#include "headroom/lease/lease.h"

namespace headroom::lease {

// What each lease's processes use of a card; a lease that is missing uses nothing.
using UsedByLease = std::map<std::string, Bytes>;

class Attribution {
 public:
  // Keeps what it found out about processes: make a new one for each look at the machine.
  explicit Attribution(const std::vector<Claim>& leases, ProcessTable processes = ProcessTable());

  // The identifier of the lease that the process belongs to on this card; empty: of none.
  [[nodiscard]] std::string lease_of(const gpu::GpuProcess& process, const gpu::Uuid& card);

  // Nothing is known of a card whose process list is not as new as its memory.
  [[nodiscard]] std::optional<UsedByLease> used_on(const gpu::Card& card);

 private:
  // Positions of the leases that the process itself has to do with.
  const std::vector<std::size_t>& own_leases(const ProcessIdentity& process);

  const std::vector<Claim>& leases_;
  const ProcessTable processes_;
  std::map<ProcessIdentity, std::vector<std::size_t>> own_;
};

// The processes that hold the lease's descriptor, as far as this user may see them. Looks at every
// process of the machine.
[[nodiscard]] std::map<std::string, std::vector<pid_t>> descriptor_holders(
    const std::vector<Claim>& leases, const ProcessTable& processes = ProcessTable());

}  // namespace headroom::lease
