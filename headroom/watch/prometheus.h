// A machine in Prometheus's text format, for node_exporter's textfile collector: no port is opened.
//
// Base units, labels that do not vary (index, uuid, name; for processes pid and user), nothing for
// what is unknown. A process that is gone is gone from the next file, and so is a lease.
#pragma once

#include <string>

#include "headroom/gpu/card.h"
#include "headroom/lease/directory.h"

namespace headroom::watch {

[[nodiscard]] std::string prometheus_text(const gpu::Machine& machine, bool processes,
                                          Clock::time_point now = Clock::now());

// What leases hold of these cards, what is left to be given (`machine` with its promises, see
// lease/ledger.h), and who waits: per card and user, for a lease's own name would be a new series
// with every job.
[[nodiscard]] std::string prometheus_leases(const gpu::Machine& machine,
                                            const lease::Contents& contents,
                                            Clock::time_point now = Clock::now());

}  // namespace headroom::watch
