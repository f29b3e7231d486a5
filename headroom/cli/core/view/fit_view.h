// The answer of `headroom fit` as text: the largest size, the recommended size, and the probes.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// For the document that --json prints.
[[nodiscard]] std::string fit_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
