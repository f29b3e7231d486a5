// `headroom queue`: the jobs that wait for GPU memory, in order, and the memory that each one
// lacks.
#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/registry.h"

namespace headroom::cli {
namespace {

ExitCode run_queue(const LeaseOptions& options) {
  show_leases(options, false, &waiting_table);
  return kOk;
}

}  // namespace

void add_queue(Registry& registry) {
  auto [command, options] =
      registry.add(&run_queue, "queue", "List the jobs that wait for GPU memory, and why",
                   "  headroom queue\n"
                   "  headroom queue --json | jq '.waiting[] | {position, user, why}'\n\n"
                   "First come, first served, but a job that fits may pass one that does not fit\n"
                   "yet. For a job that was passed eight times, the cards closest to its need are\n"
                   "kept.");
  add_lease_options(command, *options);
}

}  // namespace headroom::cli
