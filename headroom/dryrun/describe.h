// A report for people, in some twenty lines of plain text.
#pragma once

#include <string>

#include "headroom/dryrun/report.h"

namespace headroom::dryrun {

struct DescribeOptions {
  std::size_t modules = 5;  // that held the most
  std::size_t tensors = 5;  // that were the biggest at the peak
};

[[nodiscard]] std::string describe(const Report& report, const DescribeOptions& options = {});

}  // namespace headroom::dryrun
