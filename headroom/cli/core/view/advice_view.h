// What would help, in words: of each change what the process needs with it, which is the measure of
// whether it fits, and its price in time.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// Of a document with `advice`, `device`, `fits` and `method`; empty where there is no advice.
[[nodiscard]] std::string advice_text(const Json& document, const Terminal& terminal);

// One change, in two lines; `device` is null where there is no card to fit into.
[[nodiscard]] std::string change_text(const Json& one, const Json& device,
                                      const Terminal& terminal);

}  // namespace headroom::cli
