// An estimate as a picture: the card as a bar with its parts, the phase of the peak, the largest
// modules, whether it fits and by how much, and advice.
#pragma once

#include <string>
#include <vector>

#include "headroom/answer/answer.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

// `tried`: advice from runs of the user's program, already as text.
[[nodiscard]] std::string estimate_text(const answer::Answer& answer, const Terminal& terminal,
                                        const std::string& tried = {});

// The parts that every answer has: the model, the card as a bar, the parts of the peak, and the
// other cards; then the largest modules.
[[nodiscard]] std::string model_text(const answer::Answer& answer, const Terminal& terminal);
[[nodiscard]] std::string card_text(const answer::Answer& answer, const Terminal& terminal);
// One row for each kind of card; empty for one card.
[[nodiscard]] std::string devices_text(const std::vector<answer::OnCard>& cards,
                                       const Terminal& terminal);
[[nodiscard]] std::string modules_text(const std::vector<trace::ModulePeak>& by_module);

[[nodiscard]] std::string notes_text(const std::vector<std::string>& notes,
                                     const Terminal& terminal);

// Prints the answer, and gives the command's exit code.
[[nodiscard]] ExitCode print_answer(const answer::Answer& answer, bool as_json);

}  // namespace headroom::cli
