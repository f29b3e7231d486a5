#include "headroom/train/prices.h"

#include <algorithm>
#include <cmath>

#include "headroom/dryrun/step_run.h"

namespace headroom::train {

void Prices::learn(PricedRun run) {
  Level& level = levels_[run.plan.techniques];
  const std::int64_t part = largest_part(run.plan, run.rows);
  if (part == run.rows) {
    level.whole_rows = run.rows;
    level.whole.learn(part, std::move(run.requests));
  } else {
    level.parts.learn(part, std::move(run.requests));
  }
}

std::optional<Prices::Place> Prices::place_of(const Plan& plan, const Work& work) const {
  const auto found = levels_.find(plan.techniques);
  if (found == levels_.end()) return {};
  const Level& level = found->second;
  const std::int64_t part = largest_part(plan, work.rows);
  if (part == work.rows && part == level.whole_rows && work.scale == 1)
    return Place{&level, true, part};
  const double scaled = std::ceil(static_cast<double>(part) * work.scale - 1e-6);
  return Place{&level, false, std::max<std::int64_t>(1, static_cast<std::int64_t>(scaled))};
}

allocator::CachingAllocator Prices::card_of(const Plan& plan) const {
  allocator::Settings settings = settings_;
  if (!plan.allocator.empty()) allocator::apply(settings, plan.allocator);
  return allocator::CachingAllocator({.capacity = allocator::kUnlimited, .settings = settings});
}

// Null if not known.
Prices::Need* Prices::need_of(const Plan& plan, const Place& place) const {
  auto& known = place.level->needs;
  const std::tuple key(plan.allocator, place.whole, place.size);
  if (const auto found = known.find(key); found != known.end()) return &found->second;
  const auto bounds = place.predictor().bounds(place.size, card_of(plan));
  return bounds ? &known.emplace(key, Need{*bounds, {}}).first->second : nullptr;
}

Bytes Prices::exact(Need& need, const Plan& plan, const Place& place) const {
  if (!need.exact) need.exact = place.predictor().needed(place.size, card_of(plan));
  return need.exact.value_or(need.bounds.at_most);
}

std::optional<Bytes> Prices::needed(const Plan& plan, const Work& work) const {
  const auto place = place_of(plan, work);
  Need* const need = place ? need_of(plan, *place) : nullptr;
  return need == nullptr ? std::nullopt : std::optional(exact(*need, plan, *place));
}

std::optional<bool> Prices::is_served(const Plan& plan, const Work& work, Bytes card) const {
  const auto place = place_of(plan, work);
  Need* const need = place ? need_of(plan, *place) : nullptr;
  if (need == nullptr) return {};
  if (need->bounds.at_most <= card) return true;  // mostly one replay is enough
  if (need->bounds.at_least > card) return false;
  return exact(*need, plan, *place) <= card;
}

}  // namespace headroom::train
