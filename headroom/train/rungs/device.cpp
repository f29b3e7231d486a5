#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

// A card that is known to have no room for the plan as it is does not count.
std::optional<Plan> device(const Situation& now) {
  if (!now.options.elsewhere) return {};
  const Failure& failure = now.failure;
  for (const Elsewhere& other : now.options.elsewhere()) {
    Plan plan = failure.plan;
    plan.device = other.device;
    if (now.prices != nullptr && other.free &&
        !now.prices->is_served(plan, failure.work, *other.free).value_or(true))
      continue;
    return plan;
  }
  return {};
}

}  // namespace headroom::train::rungs
