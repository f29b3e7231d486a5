// Completes and checks the settings of a run.
#pragma once

#include "headroom/forecast/closed_form.h"

namespace headroom::forecast::detail {

// Completes `forecast.settings` and notes what it assumed. Throws UsageError for settings that this
// model does not support or that contradict each other.
void decide(Forecast& forecast, const model::ModelConfig& config);

}  // namespace headroom::forecast::detail
