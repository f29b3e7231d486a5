// `headroom plan --policy`: a rule of thumb fixes a part of the question, and the search finds the
// rest.
#pragma once

#include "headroom/cli/core/planning/plan_question.h"
#include "headroom/model/run_settings.h"

namespace headroom::cli {

// The question with what Settings::policy decides, and why. Throws UsageError for cards or a model
// that the rule knows nothing about.
[[nodiscard]] PlanQuestion by_rule(PlanQuestion question, const model::Settings& settings);

}  // namespace headroom::cli
