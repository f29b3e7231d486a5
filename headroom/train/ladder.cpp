#include "headroom/train/ladder.h"

#include <algorithm>
#include <cmath>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/error.h"
#include "headroom/train/rungs/rungs.h"

namespace headroom::train {
namespace {

// An empty card of the size that was free would have served the request.
bool had_room(const Failure& failure) {
  if (!failure.asked || !failure.free || *failure.asked <= Bytes{}) return false;
  allocator::CachingAllocator rest({.capacity = *failure.free});
  return rest.allocate(*failure.asked) != allocator::kNoBlock;
}

}  // namespace

Ladder::Ladder(const LadderOptions& options, const Prices* prices) : options_(options) {
  if (options.min_micro_batch < 1)
    throw UsageError(expectation("Ladder", "a least micro-batch of 1 or more",
                                 std::to_string(options.min_micro_batch), "1"));
  if (options.fewest_rows < 1)
    throw UsageError(
        expectation("Ladder", "1 row or more", std::to_string(options.fewest_rows), "1"));
  if (options.max_retries < 0)
    throw UsageError(
        expectation("Ladder", "0 retries or more", std::to_string(options.max_retries), "3"));
  set_prices(prices);
}

bool Ladder::was_tried(const Plan& plan) const {
  return std::find(tried_.begin(), tried_.end(), plan) != tried_.end();
}

// Where all plans have failed, but the card has enough for this one: short peaks of a neighbour.
std::optional<Ladder::Move> Ladder::next(const Failure& failure) {
  constexpr int kLastTries = 3;
  const auto move = next_plan(failure);
  if (move || last_tries_ == kLastTries) return move;
  const bool is_priced = prices_ != nullptr && failure.card;
  const bool is_served =
      is_priced && prices_->is_served(failure.plan, failure.work, *failure.card).value_or(false);
  if (!is_served && !had_room(failure)) return {};
  ++last_tries_;
  return Move{Event::Kind::retry, failure.plan};
}

std::optional<Ladder::Move> Ladder::next_plan(const Failure& failure) {
  const rungs::Situation now{failure, options_, prices_, was_tried(failure.plan)};
  const auto same = rungs::same_again(now);
  if (!was_tried(failure.plan)) tried_.push_back(failure.plan);
  if (same) return Move{Event::Kind::retry, *same};
  if (changes_ == options_.max_retries)
    return offers_what_lasts() ? last_resort(failure) : std::nullopt;
  ++changes_;
  if (changes_ < options_.max_retries) return cheapest(failure);
  if (const auto move = heaviest(failure)) return move;
  return offers_what_lasts() ? last_resort(failure) : std::nullopt;
}

std::optional<Ladder::Move> Ladder::cheapest(const Failure& failure) const {
  using Rung = std::optional<Plan> (*)(const rungs::Situation&);
  constexpr std::pair<Rung, Event::Kind> kRungs[] = {{rungs::allocator, Event::Kind::allocator},
                                                     {rungs::micro_batch, Event::Kind::shrink},
                                                     {rungs::technique, Event::Kind::technique}};
  rungs::Situation now{failure, options_, prices_, true};
  for (now.leaves_room = true;; now.leaves_room = false) {
    for (const auto& [rung, kind] : kRungs)
      if (const auto plan = rung(now); plan && !was_tried(*plan)) return Move{kind, *plan};
    if (!now.leaves_room) break;
  }
  if (const auto move = last_resort(failure)) return move;
  return heaviest(failure);
}

bool Ladder::offers_what_lasts() const {
  return std::any_of(plan::rungs().begin(), plan::rungs().end(), [&](const plan::Rung& rung) {
    return rung.lasts && options_.techniques.contains(rung.name);
  });
}

// What changes the result for good, then another device.
std::optional<Ladder::Move> Ladder::last_resort(const Failure& failure) const {
  rungs::Situation now{failure, options_, prices_, true};
  for (now.leaves_room = true;; now.leaves_room = false) {
    if (const auto plan = rungs::lasting(now); plan && !was_tried(*plan))
      return Move{Event::Kind::technique, *plan};
    if (!now.leaves_room) break;
  }
  if (const auto plan = rungs::device(now); plan && !was_tried(*plan))
    return Move{Event::Kind::device, *plan};
  return {};
}

// The least micro-batch with every technique; if that has failed, the same elsewhere.
std::optional<Ladder::Move> Ladder::heaviest(const Failure& failure) const {
  Failure last = failure;
  Plan& plan = last.plan;
  while (const auto next = rungs::with_next_technique(plan, options_)) plan = *next;
  const std::int64_t least = micro_batch_of(1, failure.work);
  if (largest_part(plan, failure.work.rows) > least) plan.micro_batch = least;
  for (const plan::Rung& rung : plan::rungs())
    if (rung.uses_host && !failure.plan.has(rung.name) &&
        !rungs::host_has_room(plan, failure.work, options_, prices_))
      plan.techniques.erase(rung.name);
  const rungs::Situation now{last, options_, prices_, true};
  const bool is_last = !rungs::with_next_lasting(plan, options_);
  const auto elsewhere = is_last ? rungs::device(now) : std::nullopt;
  if (elsewhere && !was_tried(*elsewhere)) return Move{Event::Kind::device, *elsewhere};
  if (was_tried(plan)) return {};
  const bool same_form = plan.techniques == failure.plan.techniques;
  return Move{same_form ? Event::Kind::shrink : Event::Kind::technique, plan};
}

std::optional<Ladder::Move> Ladder::larger_than(const Plan& failed, const Work& work) {
  tried_.push_back(failed);
  const std::int64_t part = largest_part(failed, work.rows);
  if (part == work.rows) return {};
  Plan larger = failed;
  larger.micro_batch = std::min(2 * part, work.rows);
  larger.micro_batch = largest_part(larger, work.rows);
  if (was_tried(larger)) return {};
  return Move{Event::Kind::grow, larger};
}

std::optional<Plan> Ladder::fastest(const Plan& wish, const Work& work,
                                    const PerStage& cards) const {
  const PerStage less = cards.each([&](Bytes card) { return card - options_.room.of(card); });
  for (std::optional<Plan> plan = wish; plan; plan = rungs::with_next_lasting(*plan, options_)) {
    if (const auto with_room = fastest_on(*plan, work, less)) return with_room;
    if (const auto fitting = fastest_on(*plan, work, cards)) return fitting;
  }
  return {};
}

std::optional<Plan> Ladder::fastest_on(const Plan& wish, const Work& work,
                                       const PerStage& cards) const {
  if (prices_ == nullptr) return {};
  if (prices_->is_served(wish, work, cards).value_or(false)) return wish;
  const std::int64_t most = largest_part(wish, work.rows);
  for (std::optional<Plan> plan = wish; plan; plan = rungs::with_next_technique(*plan, options_))
    if (const auto fitting = rungs::largest_fitting(*plan, most, work, cards, options_, *prices_))
      return fitting;
  return {};
}

std::optional<PricedPlan> Ladder::least(const Plan& wish, const Work& work) const {
  if (prices_ == nullptr) return {};
  std::optional<PricedPlan> least;
  for (const Plan& plan : rungs::forms_of(wish, options_))
    for (const std::int64_t size : micro_batches(work.rows, rungs::limits_of(options_))) {
      Plan smaller = plan;
      smaller.micro_batch = size;
      if (least && prices_->is_served(smaller, work, least->needed - Bytes{1}) != true) continue;
      if (const auto needed = prices_->needed(smaller, work)) least = {smaller, needed->largest()};
    }
  return least;
}

std::int64_t Ladder::micro_batch_of(std::int64_t most, const Work& work) const {
  const auto sizes = micro_batches(work.rows, rungs::limits_of(options_));
  const auto found =
      std::find_if(sizes.begin(), sizes.end(), [&](std::int64_t size) { return size <= most; });
  return found == sizes.end() ? sizes.back() : *found;
}

void Ladder::set_prices(const Prices* prices) {
  prices_ = prices;
  if (prices != nullptr) set_fewest_rows(prices->fewest_rows());
}

void Ladder::set_fewest_rows(std::int64_t rows) {
  options_.fewest_rows = std::max(options_.fewest_rows, rows);
}

void Ladder::begin_step() {
  tried_.clear();
  changes_ = last_tries_ = 0;
}

}  // namespace headroom::train
