#include <algorithm>

#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

std::optional<PerStage> card_for_less(const Situation& now) {
  const Failure& failure = now.failure;
  if (now.prices == nullptr || !failure.card) return {};
  PerStage cards = *failure.card;
  if (now.leaves_room)
    cards = cards.each([&](Bytes card) { return card - now.options.room.of(card); });
  const auto all = now.prices->needed(failure.plan, failure.work);
  if (!all) return {};
  const Bytes needed = all->of(failure.stage), asked = failure.asked.value_or(Bytes{});
  if (asked >= needed) return {};  // priced wrongly
  // A request was refused although the card had enough. So at least that much is not obtainable.
  return cards.limited(failure.stage, needed - std::max(asked, needed / 20));
}

PartLimits limits_of(const LadderOptions& options) {
  return {.least = options.min_micro_batch, .fewest = options.fewest_rows};
}

std::optional<Plan> largest_fitting(Plan plan, std::int64_t most, const Work& work,
                                    const PerStage& cards, const LadderOptions& options,
                                    const Prices& prices) {
  PartLimits limits = limits_of(options);
  limits.most = most;
  for (const std::int64_t size : micro_batches(work.rows, limits)) {
    plan.micro_batch = size;
    if (prices.is_served(plan, work, cards).value_or(false) &&
        host_has_room(plan, work, options, &prices))
      return plan;
  }
  return {};
}

std::optional<Plan> micro_batch(const Situation& now) {
  const Failure& failure = now.failure;
  const std::int64_t part = largest_part(failure.plan, failure.work.rows);
  PartLimits limits = limits_of(now.options);
  limits.most = part - 1;
  if (limits.most == 0) return {};
  if (const auto card = card_for_less(now))
    return largest_fitting(failure.plan, limits.most, failure.work, *card, now.options,
                           *now.prices);
  Plan plan = failure.plan;
  for (const std::int64_t size : micro_batches(failure.work.rows, limits)) {
    plan.micro_batch = size;
    if (size <= part / 2) break;
  }
  return plan == failure.plan ? std::nullopt : std::optional(plan);
}

}  // namespace headroom::train::rungs
