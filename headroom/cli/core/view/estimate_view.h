// An estimate as a picture: the card as a bar with its parts, the phase of the peak, the largest
// modules, whether it fits and by how much, and advice.
#pragma once

#include <string>
#include <vector>

#include "headroom/cli/core/answer.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

[[nodiscard]] std::string estimate_text(const Answer& answer, const Terminal& terminal);

// The parts that every answer has: the model, the card as a bar, the parts of the peak, and the
// other cards; then the largest modules.
[[nodiscard]] std::string model_text(const Answer& answer, const Terminal& terminal);
[[nodiscard]] std::string card_text(const Answer& answer, const Terminal& terminal);
// "3.2 M parameters, 65.8 k of them trained (2.1 %)" and the end of the line
[[nodiscard]] std::string parameters_text(const Answer& answer);
// One row for each kind of card; empty for one card.
[[nodiscard]] std::string devices_text(const std::vector<CardAnswer>& cards,
                                       const Terminal& terminal);
[[nodiscard]] std::string modules_text(const std::vector<trace::ModulePeak>& by_module);

// "causal-lm, train, bfloat16, batch 2 x 2048 tokens, fused adamw": settings that differ from the
// defaults, and those that must always be shown.
[[nodiscard]] std::string settings_text(const model::Settings& settings);

// "NVIDIA GeForce RTX 4090, 23.99 GiB (23.64 GiB usable): fits, 3.21 GiB to spare", in plain text.
[[nodiscard]] std::string verdict_text(const CardAnswer& card);

[[nodiscard]] std::string notes_text(const std::vector<std::string>& notes,
                                     const Terminal& terminal);

}  // namespace headroom::cli
