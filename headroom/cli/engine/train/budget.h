// The budget of a training: the memory of a card that parameters, gradients and optimizer states
// may take.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/training.h"
#include "headroom/recipe/recipe.h"

namespace headroom::cli {

// False if they take more than a budget that was given. More than the usual share is allowed, but
// leaves little room for a step; both are said. True on the CPU. Of a model in stages each counts,
// on its smallest card. `outputs` as for Training::model_for().
[[nodiscard]] bool allows_budget(const config::Training& training, std::int64_t outputs,
                                 const recipe::Model& model,
                                 const std::vector<c10::Device>& devices, TrainingView& view);

}  // namespace headroom::cli
