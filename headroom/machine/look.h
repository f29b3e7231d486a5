// One look at the machine, for most commands: the cards that `--gpus` names, a fresh sample of
// them, their leases, CUDA's numbers for them, and warnings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/devices.h"
#include "headroom/gpu/machine_advice.h"
#include "headroom/gpu/sampler.h"
#include "headroom/lease/ledger.h"

namespace headroom::machine {

struct Look {
  gpu::Devices devices;
  gpu::Machine machine;  // all cards, or the listed ones; `withheld` from the leases
  lease::Contents leases;
  lease::Look seen;    // which processes use the memory of which lease
  gpu::CudaView cuda;  // for a real machine
  std::vector<std::string> warnings;
  gpu::Advice advice;
};

[[nodiscard]] Look look_at_machine(const std::string& gpus,
                                   gpu::SamplerOptions options = {.keep_sampling = false});

// The cards that a command may look at; throws UsageError for the CPU.
[[nodiscard]] gpu::Devices devices_to_look_at(const std::string& gpus);
// The look that a sample of all cards gives, with the leases read before it. `cuda`: of an earlier
// look; it does not change while the machine runs, and takes a third of the time.
[[nodiscard]] Look look_at_sample(gpu::Machine sample, gpu::Devices devices, lease::Contents leases,
                                  const std::optional<gpu::CudaView>& cuda = {});

}  // namespace headroom::machine
