// `headroom lease list`: the reservations of this machine.
#include <nlohmann/json.hpp>

#include "headroom/cli/core/lease_report.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {
namespace {

struct Options {
  std::string gpus;
  bool json = false;
};

ExitCode run(const Options& options) {
  const LeaseReport report = report_leases(options.gpus, false);
  const Terminal terminal = standard_output();
  if (options.json) {
    print(to_line(document(report)) + "\n");
  } else {
    print(lease_table(report, terminal) + warning_lines(report, terminal));
  }
  return kOk;
}

}  // namespace

void add_lease(Registry& registry) {
  CLI::App* group = registry.add("lease", "Reservations of GPU memory", "  headroom lease list");
  group->require_subcommand(1);
  auto options = std::make_shared<Options>();
  CLI::App* command = registry.add("list", "The leases of this machine, of all users",
                                   "  headroom lease list\n"
                                   "  headroom lease list --json | jq '.leases[].reserved_bytes'",
                                   group);
  add_gpus_option(command, options->gpus);
  command->add_flag("--json", options->json, "One JSON document (sizes in bytes)");
  registry.run(command, options, &run);
}

}  // namespace headroom::cli
