// The budget of a training: the memory of a card that parameters, gradients and optimizer states
// may take.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/training.h"

namespace headroom::cli {

// False if they take more than a budget that was given. More than the usual share is allowed, but
// leaves little room for a step; both are said. True on the CPU. `outputs` as for
// Training::model_for().
[[nodiscard]] bool allows_budget(const config::Training& training, std::int64_t outputs,
                                 c10::Device device, TrainingView& view);

}  // namespace headroom::cli
