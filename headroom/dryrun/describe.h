// A report for people, in some twenty lines of plain text.
#pragma once

#include <string>

#include "headroom/dryrun/report.h"

namespace headroom::dryrun {

struct DescribeOptions {
  std::size_t modules = 5;  // that held the most
  std::size_t tensors = 5;  // that were the biggest at the peak
};

// One sentence if the step may have decided by values that are not known; else empty.
[[nodiscard]] std::string warning_of(const Report& report);

// For people; the warning stands beside the verdict.
[[nodiscard]] std::string describe(const Report& report, const DescribeOptions& options = {});

}  // namespace headroom::dryrun
