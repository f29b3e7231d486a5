// `headroom queue`: who waits for GPU memory, in which order, and what each of them lacks.
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
    print(waiting_table(report, terminal) + warning_lines(report, terminal));
  }
  return kOk;
}

}  // namespace

void add_queue(Registry& registry) {
  auto options = std::make_shared<Options>();
  CLI::App* command = registry.add(
      "queue", "Who waits for GPU memory, and why",
      "  headroom queue\n"
      "  headroom queue --json | jq '.waiting[] | {position, user, why}'\n\n"
      "First come, first served: who needs little may go first while the next one does not\n"
      "fit yet, but nobody is passed more than eight times.");
  add_gpus_option(command, options->gpus);
  command->add_flag("--json", options->json, "One JSON document (sizes in bytes)");
  registry.run(command, options, &run);
}

}  // namespace headroom::cli
