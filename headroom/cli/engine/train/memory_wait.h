// A run beside other jobs, which may have the memory that its step needs.
#pragma once

#include <optional>

#include "headroom/base/interrupt.h"
#include "headroom/cli/engine/train/plan_answer.h"
#include "headroom/cli/engine/train/training_view.h"
#include "headroom/config/resolved.h"
#include "headroom/train/step.h"

namespace headroom::cli {

struct BesideOthers {
  train::Step& step;
  std::int64_t rows = 0;  // of a step
  // Memory for the run if the other jobs had left, if known.
  std::optional<train::PerStage> alone;
  const config::Resolved& config;
  const Interrupt& interrupt;
  TrainingView& view;
};

// Whether a plan that is allowed fits once other jobs have left the card.
[[nodiscard]] bool fits_when_alone(const BesideOthers& run);

// Waits until the run can have the memory that its least plan needs, at most for the time and with
// the looks that the settings allow. False if a wait does not help, or it ended without the memory.
[[nodiscard]] bool wait_for_memory(const BesideOthers& run);

// Before the first step. A card that others fill is busy (BusyError), and no reason to try plan
// after plan; with wait_for_gpu=true it is waited for first.
[[nodiscard]] PlanAnswer answer_beside_others(const BesideOthers& run);

}  // namespace headroom::cli
