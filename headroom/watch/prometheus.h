// A machine in Prometheus's text format, for node_exporter's textfile collector: no port is opened.
//
// Base units, labels that do not vary (index, uuid, name; for processes pid and user), nothing for
// what is unknown. A process that is gone is gone from the next file.
#pragma once

#include <string>

#include "headroom/gpu/card.h"

namespace headroom::watch {

[[nodiscard]] std::string prometheus_text(const gpu::Machine& machine, bool processes,
                                          Clock::time_point now = Clock::now());

}  // namespace headroom::watch
