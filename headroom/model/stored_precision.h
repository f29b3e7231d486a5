// Reports where a config.json stores weights in another precision than the run's settings. The
// precision that transformers loads depends on the caller, so the settings decide and Headroom
// names the difference.
#pragma once

#include <string>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {

// One sentence per difference, with the option that counts as the file says.
[[nodiscard]] std::vector<std::string> unheeded_precision(const ModelConfig& config,
                                                          const Settings& settings);

}  // namespace headroom::model
