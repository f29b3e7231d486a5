// A profile as text: its subject and device, and the table of its rows.
#pragma once

#include <cstddef>
#include <string>

#include "headroom/answer/profile.h"
#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

// The width of a table here. A pipe or file has none, unless COLUMNS gives one.
[[nodiscard]] std::size_t profile_width();

// Prints the answer, as JSON with the rows, or as text with their table.
[[nodiscard]] ExitCode print_profile_json(const answer::ProfileAnswer& answer, const Json& rows);
[[nodiscard]] ExitCode print_profile_text(const answer::ProfileAnswer& answer,
                                          const std::string& table);

}  // namespace headroom::cli
