// A machine in Prometheus's text format, for node_exporter's textfile collector. Opens no port.
//
// Values are in base units. Labels are stable: index, uuid and name; for processes also pid and
// user. Unknown values have no series. A process or lease that has ended is absent from the next
// file.
#pragma once

#include <string>

#include "headroom/gpu/machine.h"
#include "headroom/lease/directory.h"

namespace headroom::watch {

[[nodiscard]] std::string prometheus_text(const gpu::Machine& machine, bool processes,
                                          Clock::time_point now = Clock::now());

// Memory reserved by leases (per card and user), memory that can still be leased (`machine` must
// carry the leases' promises, see lease/ledger.h), and the number of waiting jobs. A label with the
// lease's own name would start a new series with every job.
[[nodiscard]] std::string prometheus_leases(const gpu::Machine& machine,
                                            const lease::Contents& contents,
                                            Clock::time_point now = Clock::now());

}  // namespace headroom::watch
