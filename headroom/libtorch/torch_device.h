// Maps a chosen card to a LibTorch device.
//
//   auto best = gpu::find_best_device(sampler.fresh(), {.need = 10_GiB, .allow_cpu = true});
//   torch::Device device = libtorch::torch_device(best, machine);
#pragma once

#include <c10/core/Device.h>

#include "headroom/gpu/cuda_order.h"
#include "headroom/gpu/select.h"

namespace headroom::libtorch {

// cuda:N in CUDA's own numbering (which is not nvidia-smi's), or the CPU if that was chosen. Throws
// UnavailableError if no card was picked, or if this process's CUDA cannot see it.
[[nodiscard]] c10::Device torch_device(
    const gpu::Selection& selection, const gpu::Machine& machine,
    const gpu::CudaEnvironment& environment = gpu::CudaEnvironment::current());

}  // namespace headroom::libtorch
