// The commands of `headroom-engine`. `headroom` reads the command line and hands over what was
// meant as one JSON document, the request.
#pragma once

#include "headroom/base/json.h"
#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

[[nodiscard]] ExitCode run_version(bool json);
[[nodiscard]] ExitCode run_estimate(const Json& request);
[[nodiscard]] ExitCode run_fit(const Json& request);

}  // namespace headroom::cli
