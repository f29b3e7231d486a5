// A training step with random numbers in place of none, to run it in compute mode.
#pragma once

#include "headroom/estimate/training_step.h"

namespace headroom::estimate {

[[nodiscard]] TrainingStep filled_step(const model::ModelConfig& config,
                                       const model::Settings& settings, c10::Device device);

}  // namespace headroom::estimate
