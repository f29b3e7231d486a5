// The commands of `headroom-engine`. `headroom` parses the command line and passes the resolved
// request as one JSON document.
#pragma once

#include "headroom/base/json.h"
#include "headroom/cli/core/exit_code.h"

namespace headroom::cli {

[[nodiscard]] ExitCode run_version(bool json);
[[nodiscard]] ExitCode run_bench(const Json& request);
[[nodiscard]] ExitCode run_estimate(const Json& request);
[[nodiscard]] ExitCode run_fit(const Json& request);
[[nodiscard]] ExitCode run_plan(const Json& request);
[[nodiscard]] ExitCode run_profile(const Json& request);
[[nodiscard]] ExitCode run_train(const Json& request);

}  // namespace headroom::cli
