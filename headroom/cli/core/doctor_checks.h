// The checks of `headroom doctor`: each reports its result and, if that is bad, what to try.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/cuda_order.h"

namespace headroom::cli {

enum class Status { pass, warn, fail };

struct Check {
  std::string name;
  Status status = Status::pass;
  std::string found;
  std::string to_try;                // empty if there is nothing to do
  std::vector<std::string> details;  // more facts, one sentence each
};

// All checks, in the order of printing. Samples the machine again; no check takes longer than about
// 3 s, even if the driver or a program hangs.
[[nodiscard]] std::vector<Check> run_checks();

}  // namespace headroom::cli
