// Prints a report as some twenty lines of plain text.
#pragma once

#include <string>

#include "headroom/trace/report.h"

namespace headroom::dryrun {

struct DescribeOptions {
  std::size_t modules = 5;  // modules with the highest peaks to name
  std::size_t tensors = 5;  // largest tensors at the peak to name
};

// The report as text; trace::warning_of() follows the verdict.
[[nodiscard]] std::string describe(const trace::Report& report,
                                   const DescribeOptions& options = {});

}  // namespace headroom::dryrun
