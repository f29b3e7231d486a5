#include "headroom/train/prices.h"

#include <algorithm>
#include <cmath>

#include "headroom/dryrun/step_run.h"

namespace headroom::train {

int Prices::enough_parts() const {
  return stages_ > 1 && pipeline_ == plan::Pipeline::gpipe ? 0 : stages_ + 1;
}

void Prices::learn(PricedRun run) {
  const auto parts = static_cast<int>(count_of_parts(run.plan, run.rows));
  const int enough = enough_parts();
  const bool is_enough = enough > 0 && parts >= enough;
  Level& level = forms_[run.plan.techniques][is_enough ? enough : parts];
  if (!is_enough) level.rows = run.rows;
  level.stages.resize(static_cast<std::size_t>(stages_), dryrun::RequestPredictor({}));
  level.stages.at(run.stage).learn(largest_part(run.plan, run.rows), std::move(run.requests));
}

// A number of parts that was not priced takes no more memory than enough of them do.
std::optional<Prices::Place> Prices::place_of(const Plan& plan, const Work& work) const {
  const auto form = forms_.find(plan.techniques);
  if (form == forms_.end()) return {};
  const std::int64_t part = largest_part(plan, work.rows);
  const auto& levels = form->second;
  const auto parts = static_cast<int>(count_of_parts(plan, work.rows));
  if (const auto same = levels.find(parts);
      same != levels.end() && same->second.rows == work.rows && work.scale == 1)
    return Place{&same->second, part};
  const auto enough = levels.find(enough_parts());
  if (enough == levels.end()) return {};
  const double scaled = std::ceil(static_cast<double>(part) * work.scale - 1e-6);
  return Place{&enough->second, std::max<std::int64_t>(1, static_cast<std::int64_t>(scaled))};
}

allocator::CachingAllocator Prices::card_of(const Plan& plan) const {
  allocator::Settings settings = settings_;
  if (!plan.allocator.empty()) allocator::apply(settings, plan.allocator);
  return allocator::CachingAllocator({.capacity = allocator::kUnlimited, .settings = settings});
}

// Null if not known.
std::vector<Prices::Need>* Prices::needs_of(const Plan& plan, const Place& place) const {
  auto& known = place.level->needs;
  const std::tuple key(plan.allocator, place.size);
  if (const auto found = known.find(key); found != known.end()) return &found->second;
  std::vector<Need> needs;
  for (const dryrun::RequestPredictor& stage : place.level->stages) {
    const auto bounds = stage.bounds(place.size, card_of(plan));
    if (!bounds) return nullptr;
    needs.push_back({*bounds, {}});
  }
  return &known.emplace(key, std::move(needs)).first->second;
}

Bytes Prices::exact(Need& need, std::size_t stage, const Plan& plan, const Place& place) const {
  if (!need.exact) need.exact = place.level->stages[stage].needed(place.size, card_of(plan));
  return need.exact.value_or(need.bounds.at_most);
}

std::optional<PerStage> Prices::needed(const Plan& plan, const Work& work) const {
  const auto place = place_of(plan, work);
  std::vector<Need>* const needs = place ? needs_of(plan, *place) : nullptr;
  if (needs == nullptr) return {};
  std::vector<Bytes> all;
  for (std::size_t stage = 0; stage < needs->size(); ++stage)
    all.push_back(exact((*needs)[stage], stage, plan, *place));
  return PerStage(std::move(all));
}

std::optional<PerStage> Prices::peaks(const Plan& plan, const Work& work) const {
  const auto place = place_of(plan, work);
  std::vector<Need>* const needs = place ? needs_of(plan, *place) : nullptr;
  if (needs == nullptr) return {};
  std::vector<Bytes> all;
  for (const Need& need : *needs) all.push_back(need.bounds.at_most);
  return PerStage(std::move(all));
}

std::optional<bool> Prices::is_served(const Plan& plan, const Work& work,
                                      const PerStage& cards) const {
  const auto place = place_of(plan, work);
  std::vector<Need>* const needs = place ? needs_of(plan, *place) : nullptr;
  if (needs == nullptr) return {};
  for (std::size_t stage = 0; stage < needs->size(); ++stage) {
    Need& need = (*needs)[stage];
    const Bytes card = cards.of(stage);
    if (need.bounds.at_most <= card) continue;  // mostly one replay is enough
    if (need.bounds.at_least > card || exact(need, stage, plan, *place) > card) return false;
  }
  return true;
}

}  // namespace headroom::train
