// `headroom --line`: the machine on one line, for prompts and status bars.

#include "headroom/cli/core/registry.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/cli/core/view/machine_line.h"
#include "headroom/machine/look.h"

namespace headroom::cli {

ExitCode run_line(const std::string& gpus) {
  // A status bar does not wait for a driver that hangs.
  constexpr Seconds kPatience{1.0};
  gpu::Devices devices = machine::devices_to_look_at(gpus);
  gpu::Sampler sampler(gpu::make_source(devices), {.keep_sampling = false});
  lease::Contents leases = lease::contents_now();
  const machine::Look look =
      machine::look_at_sample(sampler.fresh(kPatience), std::move(devices), std::move(leases));
  print(machine_line(look.machine, standard_output()) + "\n");
  return kOk;
}

}  // namespace headroom::cli
