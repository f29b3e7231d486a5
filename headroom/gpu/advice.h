// What to do with the machine as it is now: computed from the sample, one line each, most useful
// first. Nothing to say is no advice; there are no general tips.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/card.h"

namespace headroom::gpu {

struct Advice {
  std::vector<std::string> lines;
  std::string next_command;  // the one thing to type now; never empty
};

[[nodiscard]] Advice advise(const Machine& machine);

}  // namespace headroom::gpu
