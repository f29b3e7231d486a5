// An estimate as a picture: the card as a bar with its parts, the phase of the peak, the largest
// modules, whether it fits and by how much, and advice.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// For the document that --json prints (docs/reference/json.md).
[[nodiscard]] std::string estimate_text(const Json& document, const Terminal& terminal);

// "causal-lm, train, bfloat16, batch 2 x 2048 tokens, fused adamw": settings that differ from the
// defaults, and those that must always be shown.
[[nodiscard]] std::string settings_text(const Json& settings);

// One sentence for each of the document's notes.
[[nodiscard]] std::string notes_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
