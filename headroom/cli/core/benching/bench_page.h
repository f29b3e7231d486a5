// The results of a benchmark as one page for a browser: a table, and for each model its plan as a
// picture, the memory of each card over time, what ran out and what helped, and where one card
// alone would have ended. It opens from a file, without a network.
#pragma once

#include <string>

#include "headroom/base/json.h"

namespace headroom::cli {

[[nodiscard]] std::string bench_page(const Json& results);

}  // namespace headroom::cli
