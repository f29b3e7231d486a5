#include "headroom/cli/core/planning/plan_document.h"

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "headroom/cli/core/exit_code.h"
#include "headroom/cli/core/planning/planner.h"
#include "headroom/cli/core/start_engine.h"
#include "headroom/cli/core/view/plan_view.h"

namespace headroom::cli {
namespace {

constexpr Seconds kLongest(600);

}  // namespace

Json plan_document(const PlanQuestion& question) {
  try {
    return to_json(question, plan_for(question, none_can_be_made()));
  } catch (const NotPriced&) {
  }
  const Json request{{"question", to_json(question)}, {"json", true}};
  const CommandResult answer = run_engine({"plan", to_line(request)}, "", kLongest);
  const bool is_answer =
      answer.started && (answer.exit_code == kOk || answer.exit_code == kDoesNotFit);
  if (!is_answer)
    throw UnavailableError("the plan for " + question.model +
                           " failed; `headroom plan` with this model says why");
  return parse_json(answer.out, "the plan");
}

}  // namespace headroom::cli
