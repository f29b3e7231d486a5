// Names the settings that Headroom can price but cannot run yet.
#pragma once

#include <string>
#include <vector>

#include "headroom/model/settings.h"

namespace headroom::model {

// The settings that cannot run yet, as on the command line: "--quantize 4bit".
[[nodiscard]] std::vector<std::string> cannot_run(const Settings& settings);

}  // namespace headroom::model
