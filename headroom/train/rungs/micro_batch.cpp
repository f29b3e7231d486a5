#include <algorithm>

#include "headroom/train/rungs/rungs.h"

namespace headroom::train::rungs {

std::optional<Bytes> card_for_less(const Situation& now) {
  const Failure& failure = now.failure;
  if (now.prices == nullptr || !failure.card) return {};
  Bytes card = *failure.card - now.options.room.of(*failure.card);
  const auto needed = now.prices->needed(failure.plan, failure.work);
  if (!needed || failure.asked.value_or(Bytes{}) >= *needed) return {};  // or priced wrongly
  // It was refused although the card had enough. What it could not have, at least, is too much.
  const Bytes too_much = std::max(failure.asked.value_or(Bytes{}), *needed / 20);
  return std::min(card, *needed - too_much);
}

std::optional<Plan> micro_batch(const Situation& now) {
  const Failure& failure = now.failure;
  const std::int64_t least = now.options.min_micro_batch,
                     part = largest_part(failure.plan, failure.work.rows);
  if (part <= least) return {};
  Plan plan = failure.plan;
  if (const auto card = card_for_less(now)) {
    const auto largest = now.prices->largest(plan, least, part - 1, failure.work, *card);
    if (!largest) return {};
    plan.micro_batch = *largest;
  } else {
    plan.micro_batch = std::max(part / 2, least);
  }
  return plan;
}

}  // namespace headroom::train::rungs
