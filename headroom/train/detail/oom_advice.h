// Advice after an out-of-memory, each with the bytes that it frees or saves.
#pragma once

#include <string>
#include <vector>

#include "headroom/train/oom_report.h"

namespace headroom::train::detail {

// From a report that is complete but for its advice; OomReport::advice says the order.
[[nodiscard]] std::vector<OomReport::Advice> advice_on(const OomReport& report,
                                                       const OomFacts& facts);

// "PID 4242 (python serve.py)", the command cut after 60 bytes.
[[nodiscard]] std::string name_of(const gpu::HolderReport& holder);

}  // namespace headroom::train::detail
