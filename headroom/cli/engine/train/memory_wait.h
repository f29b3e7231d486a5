// The wait of a run whose step has no plan left, because others have the card's memory.
#pragma once

#include "headroom/base/interrupt.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/resolved.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// Until the card has what the least plan for so many rows needs, at most for the time and with the
// looks that the settings allow. False: a wait does not help, or it ended without the memory.
[[nodiscard]] bool wait_for_memory(train::Step& step, std::int64_t rows,
                                   const config::Resolved& config, const Interrupt& interrupt,
                                   TrainingView& view);

}  // namespace headroom::cli
