// Every technique that saves memory for one model, with its price: `headroom estimate
// --techniques`.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

// By the closed form, on the smallest of the cards; none: without limit, with an A100's times.
[[nodiscard]] Json techniques_json(const formula::ModelConfig& config,
                                   const formula::Settings& settings,
                                   const std::vector<gpu::SimulatedCard>& cards);
[[nodiscard]] std::string techniques_text(const Json& techniques, const Terminal& terminal);

}  // namespace headroom::cli
