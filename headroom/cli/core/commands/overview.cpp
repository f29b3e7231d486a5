// `headroom` alone: the machine at a glance and one next command.
#include "headroom/cli/core/lease_view.h"
#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/view/machine_view.h"
#include "headroom/machine/look.h"

namespace headroom::cli {

ExitCode run_overview(const std::string& gpus) {
  const machine::Look look = machine::look_at_machine(gpus);
  const Terminal terminal = standard_output();
  constexpr std::size_t kMostWarnings = 3;
  std::string leases = leases_at_a_glance(look);
  if (!leases.empty()) leases = "\n" + wrapped(leases, " ", " ", terminal.width - 1);
  print(machine_picture(look.machine, terminal) + leases + notes(look, kMostWarnings, terminal) +
        "\nNext: " + terminal.paint(look.advice.next_command, Colour::bold) + "\n");
  return kOk;
}

}  // namespace headroom::cli
