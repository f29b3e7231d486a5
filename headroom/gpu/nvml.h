// Cards through NVIDIA's management library, loaded at run time: no CUDA context is ever created,
// and a machine without the driver merely answers so.
//
// The library is `libnvidia-ml.so.1`, or what HEADROOM_NVML names. Of every function the newest
// version that the driver has is used.
#pragma once

#include <memory>
#include <string>

#include "headroom/base/process.h"
#include "headroom/gpu/source.h"

namespace headroom::gpu {

// Reads nothing yet; open() loads the library.
[[nodiscard]] std::unique_ptr<CardSource> make_nvml_source(ProcessTable processes = ProcessTable());

}  // namespace headroom::gpu
