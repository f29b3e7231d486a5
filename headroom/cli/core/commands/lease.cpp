// `headroom lease list`: the reservations of this machine.
#include "headroom/cli/core/lease_report.h"
#include "headroom/cli/core/registry.h"

namespace headroom::cli {
namespace {

ExitCode run(const LeaseOptions& options) {
  show_leases(options, false, &lease_table);
  return kOk;
}

}  // namespace

void add_lease(Registry& registry) {
  CLI::App* group = registry.add("lease", "Reservations of GPU memory", "  headroom lease list");
  group->require_subcommand(1);
  auto options = std::make_shared<LeaseOptions>();
  CLI::App* command = registry.add("list", "The leases of this machine, of all users",
                                   "  headroom lease list\n"
                                   "  headroom lease list --json | jq '.leases[].reserved_bytes'",
                                   group);
  add_lease_options(command, *options);
  registry.run(command, options, &run);
}

}  // namespace headroom::cli
