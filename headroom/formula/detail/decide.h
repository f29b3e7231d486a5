// What is meant where the settings say nothing, and whether what they say goes together.
#pragma once

#include "headroom/formula/closed_form.h"

namespace headroom::formula::detail {

// Completes `forecast.settings` and notes what it assumed. Throws UsageError for settings that this
// model cannot take, or that undo each other.
void decide(Forecast& forecast, const ModelConfig& config);

}  // namespace headroom::formula::detail
