// What Headroom can run today of what it can price: the rest of the settings answer by formula.
#pragma once

#include <string>
#include <vector>

#include "headroom/formula/settings.h"

namespace headroom::formula {

// Those of the settings that nothing can run yet, as on the command line: "--quantize 4bit".
[[nodiscard]] std::vector<std::string> cannot_run(const Settings& settings);

}  // namespace headroom::formula
