// Techniques that save memory for one model, with their price, by the closed form: all of them
// (`headroom estimate --techniques`), or the cheapest ones that are enough.
#pragma once

#include <string>
#include <vector>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/simulated.h"
#include "headroom/model/model_config.h"
#include "headroom/model/settings.h"

namespace headroom::cli {

// On the smallest of the cards; without cards, for no limit and with the times of an A100.
[[nodiscard]] Json techniques_json(const model::ModelConfig& config,
                                   const model::Settings& settings,
                                   const std::vector<gpu::SimulatedCard>& cards);
// The three cheapest changes that help, with the keys of a dry run's advice. Only changes that can
// run, if the settings themselves can; if none of these is enough, adds the others that are.
[[nodiscard]] Json advice_json(const model::ModelConfig& config, const model::Settings& settings,
                               const std::vector<gpu::SimulatedCard>& cards);
// From a document with `techniques` and `device`: a table, or a list if the table is too wide.
[[nodiscard]] std::string techniques_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
