// Cards through NVIDIA's management library (NVML), loaded at run time. It never creates a CUDA
// context; without a driver, open() says so.
//
// The library is `libnvidia-ml.so.1`, or the one that HEADROOM_NVML names. Each call uses the
// newest version of its function that the driver has.
#pragma once

#include <memory>
#include <string>

#include "headroom/base/process.h"
#include "headroom/gpu/source.h"

namespace headroom::gpu {

// Reads nothing yet; open() loads the library.
[[nodiscard]] std::unique_ptr<CardSource> make_nvml_source(ProcessTable processes = ProcessTable());

}  // namespace headroom::gpu
