// The plan of an earlier run of the same job, from the store that `headroom run` uses, too.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/resolved.h"
#include "headroom/supervise/store.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// With the memory that the run could have of the device now.
[[nodiscard]] supervise::Setup setup_of(const config::Resolved& config, c10::Device device);
void remember(const supervise::Setup& setup, const train::Plan& plan, Bytes peak,
              TrainingView& view);
// Nothing: no plan, or one that is not needed because prices are known and more may fit.
[[nodiscard]] std::optional<train::Plan> remembered(const supervise::Setup& setup,
                                                    train::Step& step);

}  // namespace headroom::cli
