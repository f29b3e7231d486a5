// A machine as metrics: families of named series, which prometheus.h writes as text.
//
// Names and units are Prometheus's: base units (bytes, seconds, ratios), the unit at the name's
// end. Labels never vary: index, uuid and name for a card; for processes also pid and user; for
// jobs pid and their activity (a label `job` would be Prometheus's own). An unknown value has no
// series. A process, lease or job that has ended is absent from the next metrics.
// docs/reference/metrics.md lists them; a test compares the page with the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "headroom/gpu/machine.h"
#include "headroom/lease/directory.h"
#include "headroom/watch/job_status.h"

namespace headroom::watch {

enum class MetricKind { gauge, counter, info };

using Labels = std::vector<std::pair<std::string, std::string>>;

struct Series {
  Labels labels;
  double value = 0;
};

// `name` lacks the endings _total of a counter and _info of an info.
struct Family {
  std::string name;
  MetricKind kind = MetricKind::gauge;
  std::string help;  // one sentence
  std::vector<Series> series = {};
};
using Families = std::vector<Family>;

struct MetricsOptions {
  bool processes = false;
  // The age from which a card has no series except its age. A program that samples at an interval
  // adds it: a sample is always that old before the next one.
  Seconds fresh_for = gpu::kFreshFor;
};

[[nodiscard]] Families card_metrics(const gpu::Machine& machine, MetricsOptions options,
                                    Clock::time_point now = Clock::now());

// Memory reserved by leases (per card and user), memory that can still be leased (`machine` must
// carry the leases' promises, see lease/ledger.h), and the queue. A label with the lease's own name
// would start a new series with every job.
[[nodiscard]] Families lease_metrics(const gpu::Machine& machine, const lease::Contents& contents,
                                     MetricsOptions options, Clock::time_point now = Clock::now());

// The trainings of this user (job_status.h).
[[nodiscard]] Families job_metrics(const std::vector<JobStatus>& jobs,
                                   WallTime now = std::chrono::system_clock::now());

// All of the above, with leases and jobs read now. Does not call the driver.
[[nodiscard]] Families metrics_now(const gpu::Machine& machine, MetricsOptions options);

}  // namespace headroom::watch
