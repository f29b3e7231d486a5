// The document of `headroom estimate --json` from the closed form: the same keys as a dry run's.
#pragma once

#include <vector>

#include "headroom/base/json.h"
#include "headroom/forecast/closed_form.h"
#include "headroom/forecast/policies.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/model_catalogue.h"

namespace headroom::cli {

// For the card with the least memory left; without cards, for no limit.
[[nodiscard]] Json forecast_document(const model::NamedModel& model,
                                     const model::Settings& settings,
                                     const std::vector<gpu::SimulatedCard>& cards);

// The rule of thumb in bytes per parameter, for comparison.
[[nodiscard]] Json rule_json(const forecast::QuickEstimate& rule);

// Facts about the model and the card, as in a dry run's document.
[[nodiscard]] Json device_json(const gpu::SimulatedCard* card);
[[nodiscard]] Json model_json(const model::NamedModel& model, long long parameters,
                              long long trainable_parameters);

}  // namespace headroom::cli
