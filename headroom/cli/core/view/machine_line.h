// A machine on one line: "2/8 free · 0: 31.0/31.4G 98% · 1: ...".
#pragma once

#include <string>

#include "headroom/cli/core/terminal.h"
#include "headroom/gpu/machine.h"

namespace headroom::cli {

// At most as wide as the terminal: with more cards each gets shorter, "0 99%" (memory in use), and
// in the end only their sum is left. A free card is one on which no process computes.
[[nodiscard]] std::string machine_line(const gpu::Machine& machine, const Terminal& terminal,
                                       Clock::time_point now = Clock::now());

}  // namespace headroom::cli
