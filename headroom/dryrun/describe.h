// Prints a report as some twenty lines of plain text.
#pragma once

#include <string>

#include "headroom/trace/report.h"

namespace headroom::dryrun {

struct DescribeOptions {
  std::size_t modules = 5;  // modules with the highest peaks to name
  std::size_t tensors = 5;  // largest tensors at the peak to name
};

// One sentence if the step may have branched on unknown values; else empty.
[[nodiscard]] std::string warning_of(const trace::Report& report);

// The report as text; the warning follows the verdict.
[[nodiscard]] std::string describe(const trace::Report& report,
                                   const DescribeOptions& options = {});

}  // namespace headroom::dryrun
