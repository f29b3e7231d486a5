// The answer of `headroom plan`: as one JSON document, and for a terminal.
#pragma once

#include <string>

#include "headroom/base/json.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/terminal.h"

namespace headroom::cli {

[[nodiscard]] Json to_json(const PlanQuestion& question, const Planned& planned);
[[nodiscard]] std::string plan_text(const PlanQuestion& question, const Planned& planned,
                                    const Terminal& terminal);

// "3.8 s", "2.4 ms"
[[nodiscard]] std::string step_time_text(double seconds);

// Prints the answer, and gives the command's exit code.
[[nodiscard]] ExitCode print_plan(const PlanQuestion& question, const Planned& planned,
                                  bool as_json);

}  // namespace headroom::cli
