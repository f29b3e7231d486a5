// The document that `headroom train --json` prints at the end (docs/reference/json.md).
#pragma once

#include <vector>

#include "headroom/base/json.h"
#include "headroom/config/resolved.h"
#include "headroom/train/oom_report.h"
#include "headroom/train/trainer.h"

namespace headroom::cli {

// `before`: the events while the model was made.
[[nodiscard]] Json document_of(const train::Trained& done, train::Step& step,
                               const config::Resolved& config, std::int64_t effective_batch,
                               const std::vector<train::Event>& before);

// The same for a run that memory ended: null where it did not come so far. `heard`: all events,
// with those of the step that failed.
[[nodiscard]] Json document_of_failure(train::Trainer* trainer, const config::Resolved& config,
                                       std::int64_t effective_batch,
                                       const std::vector<train::Event>& heard,
                                       const std::optional<train::OomReport>& report);

}  // namespace headroom::cli
