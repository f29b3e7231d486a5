#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

std::optional<Plan> same_again(const Situation& now) {
  if (now.is_repeated) return {};
  const Failure& failure = now.failure;
  if (now.prices != nullptr && failure.card &&
      !now.prices->is_served(failure.plan, failure.work, *failure.card).value_or(true))
    return {};
  return failure.plan;
}

}  // namespace headroom::train::rungs
