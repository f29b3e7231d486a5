#include "headroom/cli/core/look.h"

#include "headroom/watch/gpus_json.h"

namespace headroom::cli {

void add_gpus_option(CLI::App* command, std::string& gpus) {
  command->add_option("--gpus", gpus,
                      "auto, all, numbers (0,2), UUIDs, sim:8x24GiB, or a card's name "
                      "(default: HEADROOM_GPUS, else auto)");
}

Look look_at_machine(const std::string& gpus, gpu::SamplerOptions options) {
  Look look;
  look.devices = gpu::devices_from(gpus);
  gpu::Sampler sampler(gpu::make_source(look.devices), options);
  const gpu::Machine whole = sampler.fresh();
  const auto environment = gpu::CudaEnvironment::current();
  if (!whole.simulated) look.cuda = cuda_view(whole, environment);
  look.warnings = watch::data_warnings(whole);
  for (const std::string& warning : look.cuda.warnings) look.warnings.push_back(warning);
  if (!look.cuda.why_empty.empty()) look.warnings.push_back(look.cuda.why_empty);
  // What is shown is what is there: only a list of cards narrows it.
  look.machine = gpu::narrowed(whole, look.devices, gpu::CudaEnvironment{});
  look.advice = advise(look.machine);
  return look;
}

}  // namespace headroom::cli
