#include "headroom/machine/look.h"

#include "headroom/base/error.h"
#include "headroom/base/text.h"
#include "headroom/lease/lease_text.h"
#include "headroom/watch/gpus_json.h"

namespace headroom::machine {
namespace {

std::string visible_text(const gpu::Machine& machine, const gpu::CudaView& view) {
  std::vector<std::string> names;
  for (const std::size_t position : view.cards) names.push_back(label(machine.cards[position]));
  return "CUDA_VISIBLE_DEVICES lets programs started here see only " + join(names, ", ");
}

}  // namespace

gpu::Devices devices_to_look_at(const std::string& gpus) {
  gpu::Devices devices = gpu::devices_from(gpus);
  if (devices.kind == gpu::Devices::Kind::cpu)
    throw UsageError(expectation("--gpus", "GPUs to look at", "cpu", "all"));
  return devices;
}

Look look_at_machine(const std::string& gpus, gpu::SamplerOptions options) {
  gpu::Devices devices = devices_to_look_at(gpus);
  gpu::Sampler sampler(gpu::make_source(devices), options);
  lease::Contents leases = lease::contents_now();
  return look_at_sample(sampler.fresh(), std::move(devices), std::move(leases));
}

Look look_at_sample(gpu::Machine sample, gpu::Devices devices, lease::Contents leases,
                    const std::optional<gpu::CudaView>& cuda) {
  Look look;
  look.devices = std::move(devices);
  look.leases = std::move(leases);
  look.seen = lease::look_at(std::move(sample), look.leases);
  const gpu::Machine whole = lease::with_promises(look.seen);
  const auto environment = gpu::CudaEnvironment::current();
  if (!whole.simulated) look.cuda = cuda ? *cuda : cuda_view(whole, environment);
  look.warnings = watch::data_warnings(whole);
  for (const std::string& warning : look.leases.warnings) look.warnings.push_back(warning);
  if (!look.leases.leases.empty())
    for (const std::string& sentence : long_unused(look.seen)) look.warnings.push_back(sentence);
  for (const std::string& warning : look.cuda.warnings) look.warnings.push_back(warning);
  if (!look.cuda.why_empty.empty()) look.warnings.push_back(look.cuda.why_empty);
  // Shows all cards of the machine; only an explicit list narrows them.
  look.machine = gpu::narrowed(whole, look.devices, gpu::CudaEnvironment{});
  look.advice = advise(look.machine);
  // The shown cards are more than programs started here can use.
  if (environment.visible_devices && !look.cuda.cards.empty())
    look.advice.lines.insert(look.advice.lines.begin(), visible_text(whole, look.cuda));
  return look;
}

}  // namespace headroom::machine
