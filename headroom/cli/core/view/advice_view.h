// Changes that save memory, as text: for each the memory of the process, which decides whether it
// fits, and its cost in time.
#pragma once

#include <string>
#include <vector>

#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/simulated.h"
#include "headroom/plan/savings.h"

namespace headroom::cli {

// For a run that does or does not fit this card (null means no limit), by dry run or by formula.
// Empty without advice.
[[nodiscard]] std::string advice_text(const std::vector<plan::Saving>& advice,
                                      const gpu::SimulatedCard* card, bool does_not_fit,
                                      bool dry_run, const Terminal& terminal);

// All techniques as a table, or as a list if the table is too wide.
[[nodiscard]] std::string techniques_text(const std::vector<plan::Saving>& techniques,
                                          const gpu::SimulatedCard* card, const Terminal& terminal);

}  // namespace headroom::cli
