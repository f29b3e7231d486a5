// Which settings mean something for a model and a run: `--image` is nothing to a model of tokens.
#pragma once

#include <string>
#include <vector>

#include "headroom/formula/model_config.h"
#include "headroom/formula/settings.h"

namespace headroom::formula {

// `given`: options as on the command line ("--image"). Throws UsageError naming the first of them
// that changes nothing here, and why.
void check_meaning(const ModelConfig& config, const Settings& settings,
                   const std::vector<std::string>& given);

}  // namespace headroom::formula
