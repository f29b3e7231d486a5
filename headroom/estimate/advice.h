// Suggests changes that make a run fit, or smaller: the three best changes of its settings,
// each dry-run. If none of these fits, it adds techniques that are enough by formula but that
// Headroom cannot run yet.
//
//   for (const plan::Saving& one : advise(model, estimate, card_options))
//     say(one.option, to_string(one.saves), one.time_factor);
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "headroom/estimate/estimate.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/run_settings.h"
#include "headroom/plan/savings.h"

namespace headroom::estimate {

struct AdviceOptions {
  std::size_t wanted = 3;
  // True for settings that may be tried; without a function, all may be tried.
  std::function<bool(const model::Settings&)> allows = {};
};

// The closed form chooses from all changes that can run; changes that save nothing for this model
// are left out. A technique that can run has the figures of its dry run; the others have those of
// the closed form. Throws the exceptions of estimate_memory.
[[nodiscard]] std::vector<plan::Saving> advise(const model::NamedModel& model, const Estimate& now,
                                               const Options& options = {},
                                               const AdviceOptions& wanted = {});

}  // namespace headroom::estimate
