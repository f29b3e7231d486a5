// A training step of a published model whose tensors have random values.
#pragma once

#include "headroom/estimate/training_step.h"

namespace headroom::gpu_check {

[[nodiscard]] estimate::TrainingStep filled_step(const model::ModelConfig& config,
                                                 const model::Settings& settings,
                                                 c10::Device device);

}  // namespace headroom::gpu_check
