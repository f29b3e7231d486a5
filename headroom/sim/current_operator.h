// The operator that runs on a simulated card on this thread.
#pragma once

#include <string_view>

namespace headroom::sim {

// Rules and kernels count as their operator. Empty if none runs: the program itself allocates.
[[nodiscard]] std::string_view current_operator() noexcept;

}  // namespace headroom::sim
