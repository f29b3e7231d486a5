// The answer of `headroom fit` in words: the largest size, what is recommended, and what was tried.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// Of the document that --json prints.
[[nodiscard]] std::string fit_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
