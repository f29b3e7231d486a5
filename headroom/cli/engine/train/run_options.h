// The request to the engine's half of `headroom train`: the configuration, and the options of a
// run.
#pragma once

#include "headroom/base/json.h"
#include "headroom/config/training.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {

// The configuration in a request, with its meaning.
[[nodiscard]] config::Training training_of(const Json& request);

// The options of a run of this many steps; the caller adds StepOptions and the listener.
[[nodiscard]] train::TrainerOptions trainer_options_of(const Json& request,
                                                       const config::Resolved& config,
                                                       std::int64_t steps);

}  // namespace headroom::cli
