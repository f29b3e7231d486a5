// An estimate as a picture: the card as a bar with its parts, the phase of the peak, what holds the
// most, whether it fits and by how much, what would help.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// Of the document that --json prints (docs/reference/json.md).
[[nodiscard]] std::string estimate_text(const Json& document, const Terminal& terminal);

// "causal-lm, train, bfloat16, batch 2 x 2048 tokens, fused adamw": what differs from the defaults,
// and what must never be assumed in silence.
[[nodiscard]] std::string settings_text(const Json& settings);

// A sentence for each of the document's notes.
[[nodiscard]] std::string notes_text(const Json& document, const Terminal& terminal);

}  // namespace headroom::cli
