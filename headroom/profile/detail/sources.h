// The two sources of profiles: PyTorch's own profiler, started, stopped and read (kineto.cpp), and
// the simulated cards of this process (simulated_source.cpp).
#pragma once

#include <memory>

#include "headroom/profile/profiler.h"

namespace headroom::profile::detail {

[[nodiscard]] std::unique_ptr<ProfileSource> start_kineto();
[[nodiscard]] std::unique_ptr<ProfileSource> start_on_cards(const NamedTensors& tensors);

}  // namespace headroom::profile::detail
