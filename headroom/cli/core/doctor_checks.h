// The checks of `headroom doctor`: each says what it found and, if that is not good, what to try.
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
  std::string to_try;                // empty when nothing is to be done
  std::vector<std::string> details;  // more to know, one sentence each
};

// Everything, in the order in which it is printed. Looks at the machine anew; no check takes longer
// than about 3 s, whatever hangs.
[[nodiscard]] std::vector<Check> run_checks();

}  // namespace headroom::cli
