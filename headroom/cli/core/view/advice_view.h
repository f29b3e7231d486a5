// Advice as text: for each change the memory of the process, which decides whether it fits, and its
// cost in time.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// For a document with `advice`, `device`, `fits` and `method`; empty without advice.
[[nodiscard]] std::string advice_text(const Json& document, const Terminal& terminal);

// One change, in two lines; `device` is null if there is no card to fit into.
[[nodiscard]] std::string change_text(const Json& one, const Json& device,
                                      const Terminal& terminal);

}  // namespace headroom::cli
