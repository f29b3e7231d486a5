#include <algorithm>

#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

std::optional<Plan> with_next_technique(const Plan& plan, const LadderOptions& options) {
  for (const plan::Rung& rung : plan::rungs())
    if (options.techniques.contains(rung.name) && !plan.has(rung.name))
      return with(plan, rung.name);
  return {};
}

bool host_has_room(const Plan& plan, const Work& work, const LadderOptions& options,
                   const Prices* prices) {
  Plan on_card = plan;
  for (const plan::Rung& rung : plan::rungs())
    if (rung.uses_host) on_card.techniques.erase(rung.name);
  if (on_card == plan || prices == nullptr || !options.host_memory) return true;
  const auto all = prices->needed(on_card, work), rest = prices->needed(plan, work);
  const auto host = options.host_memory();
  return !host || !all || !rest || *all - *rest <= *host;
}

std::optional<Plan> technique(const Situation& now) {
  const Failure& failure = now.failure;
  const auto card = card_for_less(now);
  for (auto plan = with_next_technique(failure.plan, now.options); plan;
       plan = with_next_technique(*plan, now.options)) {
    if (!card && host_has_room(*plan, failure.work, now.options, now.prices)) return plan;
    if (!card) continue;
    if (const auto fitting = largest_fitting(*plan, failure.work.rows, failure.work, *card,
                                             now.options, *now.prices))
      return fitting;
  }
  return {};
}

}  // namespace headroom::train::rungs
