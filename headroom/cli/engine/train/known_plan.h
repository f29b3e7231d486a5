// The plan of an earlier run of the same job, from the store that `headroom run` uses, too.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <vector>

#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/training.h"
#include "headroom/plan/store.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// `usable`: the memory that the run could have on the device now. The job has the keys that decide
// which plans are allowed.
[[nodiscard]] plan::Setup setup_of(const config::Training& training,
                                   const std::vector<c10::Device>& devices,
                                   std::optional<Bytes> usable);
void remember(const plan::Setup& setup, const train::Plan& plan, Bytes peak, TrainingView& view);
// For a batch of this many rows. std::nullopt: no plan, or one that is not needed because prices
// are known and more may fit, or that is known not to fit.
[[nodiscard]] std::optional<train::Plan> remembered(const plan::Setup& setup, train::Step& step,
                                                    std::int64_t rows);

}  // namespace headroom::cli
