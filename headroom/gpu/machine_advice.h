// Advice about the machine in its present state, computed from the sample: one line each, most
// useful first. There are no general tips; without findings there are no lines.
#pragma once

#include <string>
#include <vector>

#include "headroom/gpu/machine.h"

namespace headroom::gpu {

struct Advice {
  std::vector<std::string> lines;
  std::string next_command;  // the one command to type now; never empty
};

[[nodiscard]] Advice advise(const Machine& machine);

// "python train.py" for "/opt/venv/bin/python train.py": a long folder would leave no room for the
// program's name.
[[nodiscard]] std::string without_folder(const std::string& command);

// A card on which no process computes and none is about to start. A desktop may use it.
[[nodiscard]] bool is_idle(const Card& card);

}  // namespace headroom::gpu
