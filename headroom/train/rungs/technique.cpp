#include <algorithm>

#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

std::optional<Plan> with_next_technique(const Plan& plan, const LadderOptions& options) {
  for (const plan::Rung& rung : plan::rungs())
    if (!rung.lasts && options.techniques.contains(rung.name) && !plan.has(rung.name))
      return with(plan, rung.name);
  return {};
}

// Of those that last, each takes less memory than those before it.
std::optional<Plan> with_next_lasting(const Plan& plan, const LadderOptions& options) {
  const plan::Rung* next = nullptr;
  for (const plan::Rung& rung : plan::rungs()) {
    if (!rung.lasts || !options.techniques.contains(rung.name)) continue;
    if (plan.has(rung.name))
      next = nullptr;
    else if (next == nullptr)
      next = &rung;
  }
  return next == nullptr ? std::nullopt : std::optional(with(plan, next->name));
}

std::vector<Plan> forms_of(const Plan& plan, const LadderOptions& options) {
  std::vector<Plan> all;
  for (std::optional<Plan> level = plan; level; level = with_next_lasting(*level, options))
    for (std::optional<Plan> form = level; form; form = with_next_technique(*form, options))
      all.push_back(*form);
  return all;
}

bool host_has_room(const Plan& plan, const Work& work, const LadderOptions& options,
                   const Prices* prices) {
  Plan on_card = plan;
  for (const plan::Rung& rung : plan::rungs())
    if (rung.uses_host) on_card.techniques.erase(rung.name);
  if (on_card == plan || prices == nullptr || !options.host_memory) return true;
  const auto all = prices->needed(on_card, work), rest = prices->needed(plan, work);
  const auto host = options.host_memory();
  return !host || !all || !rest || all->sum() - rest->sum() <= *host;
}

// The first plan that fits, adding one technique at a time to `plan`; where that is not known, the
// first that the host has room for.
static std::optional<Plan> first_fitting(std::optional<Plan> plan, const Situation& now) {
  const Failure& failure = now.failure;
  const auto card = card_for_less(now);
  for (; plan; plan = with_next_technique(*plan, now.options)) {
    if (!card && host_has_room(*plan, failure.work, now.options, now.prices)) return plan;
    if (!card) continue;
    if (const auto fitting = largest_fitting(*plan, failure.work.rows, failure.work, *card,
                                             now.options, *now.prices))
      return fitting;
  }
  return {};
}

std::optional<Plan> technique(const Situation& now) {
  return first_fitting(with_next_technique(now.failure.plan, now.options), now);
}

std::optional<Plan> lasting(const Situation& now) {
  for (auto plan = with_next_lasting(now.failure.plan, now.options); plan;
       plan = with_next_lasting(*plan, now.options))
    if (const auto fitting = first_fitting(plan, now)) return fitting;
  return {};
}

}  // namespace headroom::train::rungs
