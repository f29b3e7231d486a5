// What the engine's half of `headroom train` is asked: the configuration, and the options of a run.
#pragma once

#include "headroom/base/json.h"
#include "headroom/config/training.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {

// The configuration in a request, with what it means.
[[nodiscard]] config::Training training_of(const Json& request);

// Of a run of so many steps, without its step and its listener.
[[nodiscard]] train::TrainerOptions trainer_options_of(const Json& request,
                                                       const config::Resolved& config,
                                                       std::int64_t steps);

}  // namespace headroom::cli
