// The wait of a run whose step has no plan left, because others have the card's memory.
#pragma once

#include <optional>

#include "headroom/base/interrupt.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/resolved.h"
#include "headroom/train/step.h"

namespace headroom::cli {

// Until the run can have what the least plan for so many rows needs, at most for the time and with
// the looks that the settings allow. `alone`: what it could have without the other jobs; nothing:
// all of the card. False: a wait does not help, or it ended without the memory.
[[nodiscard]] bool wait_for_memory(train::Step& step, std::int64_t rows, std::optional<Bytes> alone,
                                   const config::Resolved& config, const Interrupt& interrupt,
                                   TrainingView& view);

}  // namespace headroom::cli
