// What a config.json says of how its weights are stored, where a run's settings count otherwise:
// what transformers does with it depends on how the model is loaded, so the settings decide and the
// difference is named.
#pragma once

#include <string>
#include <vector>

#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"

namespace headroom::formula {

// A sentence for each difference, with the option that would count as the file says.
[[nodiscard]] std::vector<std::string> unheeded_precision(const ModelConfig& config,
                                                          const Settings& settings);

}  // namespace headroom::formula
