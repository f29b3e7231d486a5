// PyTorch's own profiler as a source of profiles: started, stopped and read.
#pragma once

#include <memory>

#include "headroom/memory/profiler.h"

namespace headroom::memory::detail {

[[nodiscard]] std::unique_ptr<ProfileSource> start_kineto();

}  // namespace headroom::memory::detail
