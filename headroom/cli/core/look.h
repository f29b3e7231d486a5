// One look at the machine, as most commands take it: which cards `--gpus` means, a fresh sample of
// them, what leases hold of them, how CUDA numbers them, and what is to be warned of.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "headroom/gpu/advice.h"
#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/devices.h"
#include "headroom/gpu/sampler.h"
#include "headroom/lease/directory.h"

namespace headroom::cli {

// The option every such command has.
void add_gpus_option(CLI::App* command, std::string& gpus);
// For commands that compare cards it may be given several times.
void add_gpus_option(CLI::App* command, std::vector<std::string>& gpus);

struct Look {
  gpu::Devices devices;
  gpu::Machine machine;  // all cards, or the listed ones; `promised` is what leases hold
  lease::Contents leases;
  gpu::CudaView cuda;  // of a real machine
  std::vector<std::string> warnings;
  gpu::Advice advice;
};

[[nodiscard]] Look look_at_machine(const std::string& gpus,
                                   gpu::SamplerOptions options = {.keep_sampling = false});

}  // namespace headroom::cli
