// What saves memory for one model, with its price, by the closed form: all of it (`headroom
// estimate
// --techniques`), or the cheapest that is enough.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"
#include "headroom/gpu/simulated.h"

namespace headroom::cli {

// On the smallest of the cards; none: without limit, with an A100's times.
[[nodiscard]] Json techniques_json(const formula::ModelConfig& config,
                                   const formula::Settings& settings,
                                   const std::vector<gpu::SimulatedCard>& cards);
// The three cheapest changes that help, with the keys of a dry run's advice. Only what can run, if
// the settings themselves can; where none of these is enough, what else is.
[[nodiscard]] Json advice_json(const formula::ModelConfig& config,
                               const formula::Settings& settings,
                               const std::vector<gpu::SimulatedCard>& cards);
// Of a document with `techniques` and `device`: a table, or a list where that is too wide.
[[nodiscard]] std::string techniques_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
