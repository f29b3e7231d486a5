// A configuration as a table for people, and as JSON: `headroom config explain`.
#pragma once

#include <string>

#include "headroom/base/json.h"

namespace headroom::config {

class Resolved;

//   key         value  origin
//   batch_size  8      command line
//   seq         -      default
[[nodiscard]] std::string explain(const Resolved& config);

// {"keys": [{"key": "batch_size", "value": 8, "origin": "command line"}, ...]}
[[nodiscard]] Json explain_json(const Resolved& config);

}  // namespace headroom::config
