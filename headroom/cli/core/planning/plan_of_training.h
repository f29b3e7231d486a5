// The key `plan` of `headroom train`: a run on several cards begins with the fastest plan for them.
#pragma once

#include <functional>
#include <string_view>

#include "headroom/config/resolved.h"
#include "headroom/gpu/devices.h"

namespace headroom::cli {

// Sets the keys of the plan that `plan` asks for, and says in a sentence what it is. Does nothing
// for plan=off; without `plan`, plans for cards that --gpus names, unless the keys say how to share
// them; if no plan fits, the run is then on one card. Throws UsageError and InputError for a file
// that holds no plan or another model's, and OutOfMemoryError if no plan of plan=auto fits.
void take_plan(config::Resolved& config, const gpu::Devices& devices,
               const std::function<void(std::string_view)>& say);

}  // namespace headroom::cli
