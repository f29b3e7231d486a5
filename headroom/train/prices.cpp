#include "headroom/train/prices.h"

#include <algorithm>
#include <cmath>

#include "headroom/estimate/step_run.h"

namespace headroom::train {

Prices::Form Prices::form_of(const Plan& plan) {
  return {plan.checkpointing, plan.fused_loss, plan.offload};
}

void Prices::learn(PricedRun run) {
  Level& level = levels_[form_of(run.plan)];
  const std::int64_t part = largest_part(run.plan, run.rows);
  if (part == run.rows) {
    level.whole_rows = run.rows;
    level.whole.learn(part, std::move(run.requests));
  } else {
    level.parts.learn(part, std::move(run.requests));
  }
}

std::optional<Prices::Place> Prices::place_of(const Plan& plan, std::int64_t part,
                                              const Work& work) const {
  const auto found = levels_.find(form_of(plan));
  if (found == levels_.end()) return {};
  const Level& level = found->second;
  if (part == work.rows && part == level.whole_rows && work.scale == 1)
    return Place{&level, true, part};
  const double scaled = std::ceil(static_cast<double>(part) * work.scale - 1e-6);
  return Place{&level, false, std::max<std::int64_t>(1, static_cast<std::int64_t>(scaled))};
}

allocator::CachingAllocator Prices::card_of(const Plan& plan, Bytes capacity) const {
  allocator::Settings settings = settings_;
  if (!plan.allocator.empty()) allocator::apply(settings, plan.allocator);
  return allocator::CachingAllocator(
      {.capacity = std::max(capacity, Bytes{}), .settings = settings});  // less than the margin
}

std::optional<Bytes> Prices::needed(const Plan& plan, const Work& work) const {
  const auto place = place_of(plan, largest_part(plan, work.rows), work);
  if (!place) return {};
  auto& known = place->level->needed;
  const std::tuple key(plan.allocator, place->whole, place->size);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  const auto needed = place->predictor().needed(place->size, card_of(plan, allocator::kUnlimited));
  if (needed) known.emplace(key, *needed);
  return needed;
}

std::optional<bool> Prices::is_served(const Plan& plan, const Work& work, Bytes card) const {
  const auto place = place_of(plan, largest_part(plan, work.rows), work);
  if (!place) return {};
  return place->predictor().fits(place->size, card_of(plan, card));
}

std::optional<std::int64_t> Prices::largest(const Plan& plan, std::int64_t least, std::int64_t most,
                                            const Work& work, Bytes card) const {
  most = std::min(most, work.rows);
  const allocator::CachingAllocator empty = card_of(plan, card);
  const auto fits = [&](std::int64_t part) {
    const auto place = place_of(plan, part, work);
    return place && place->predictor().fits(place->size, empty).value_or(false);
  };
  if (most < least || !fits(least)) return {};
  if (fits(most)) return most;
  std::int64_t size = least;
  for (std::int64_t too_large = most; too_large - size > 1;) {
    const std::int64_t middle = size + (too_large - size) / 2;
    (fits(middle) ? size : too_large) = middle;
  }
  // A larger part may need less, where it goes into other gaps of the allocator.
  for (std::int64_t larger = std::min(size + 4, most - 1); larger > size + 1; --larger)
    if (fits(larger)) return larger;
  return size;
}

}  // namespace headroom::train
