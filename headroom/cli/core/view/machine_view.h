// The picture of a machine: two lines per card, at most 80 cells wide unless the terminal is wider.
#pragma once

#include <string>

#include "headroom/cli/core/terminal.h"
#include "headroom/machine/look.h"

namespace headroom::cli {

// "RTX 4090" for "NVIDIA GeForce RTX 4090".
[[nodiscard]] std::string brief_name(const gpu::Card& card);

[[nodiscard]] std::string machine_title(const gpu::Machine& machine, const Terminal& terminal);
[[nodiscard]] std::string machine_picture(const gpu::Machine& machine, const Terminal& terminal);

// At most `most_warnings` warnings (then "+N more"), and advice.
[[nodiscard]] std::string notes(const machine::Look& look, std::size_t most_warnings,
                                const Terminal& terminal);

}  // namespace headroom::cli
