// The answer of `headroom plan --json`, for a program that goes on with it.
//
//   const Json plan = plan_document(question);
//   plan.at("chosen").at("keys");   // null if nothing fits
#pragma once

#include "headroom/base/json.h"
#include "headroom/cli/core/planning/plan_question.h"

namespace headroom::cli {

// With known prices at once; else headroom-engine makes dry runs of stages. Throws UsageError and
// InputError as a plan does, and UnavailableError without an engine.
[[nodiscard]] Json plan_document(const PlanQuestion& question);

}  // namespace headroom::cli
