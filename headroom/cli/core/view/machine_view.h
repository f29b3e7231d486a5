// The picture of a machine: two lines a card, at most 80 cells wide unless there is more room.
#pragma once

#include <string>

#include "headroom/cli/core/look.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// "RTX 4090" for "NVIDIA GeForce RTX 4090".
[[nodiscard]] std::string brief_name(const gpu::Card& card);

[[nodiscard]] std::string machine_title(const gpu::Machine& machine, const Terminal& terminal);
[[nodiscard]] std::string machine_picture(const gpu::Machine& machine, const Terminal& terminal);

// Warnings (at most `most`), advice, and the next command to type.
[[nodiscard]] std::string notes(const Look& look, std::size_t most_warnings,
                                const Terminal& terminal);

}  // namespace headroom::cli
