// Checks that settings mean something for a run: `--image` means nothing to a model of tokens.
#pragma once

#include <string>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/run_settings.h"

namespace headroom::model {

// `given`: options as on the command line ("--image"). Throws UsageError for the first option that
// has no effect on this run, with the reason.
void check_meaning(const ModelConfig& config, const Settings& settings,
                   const std::vector<std::string>& given);

}  // namespace headroom::model
