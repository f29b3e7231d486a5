#include "headroom/supervise/earlier_runs.h"

#include <algorithm>
#include <utility>

#include "headroom/supervise/host_use.h"
#include "headroom/supervise/next_batch.h"

namespace headroom::supervise {
namespace {

// The use was sampled once a second: it may have been higher in between.
constexpr std::int64_t kNeedPercent = 110;
// With so much more memory than when it was found, a larger batch may work.
constexpr std::int64_t kMuchMorePercent = 125;

plan::Setup setup_of(std::string job, const Place& place) {
  if (place.cards.empty()) {
    const HostUse host = host_use({});
    return {.job = std::move(job), .card = "CPU", .free = host.limit.value_or(Bytes{0})};
  }
  return {.job = std::move(job),
          .card = place.cards.front().card.name,
          .free = place.room().value_or(Bytes{0})};
}

}  // namespace

EarlierRuns::EarlierRuns(const edit::Knobs& knobs) : knobs_(knobs) {}

std::string EarlierRuns::exact_command() const {
  const auto batch = knobs_.value(edit::Quantity::batch);
  const std::string values = " with batch " + std::to_string(batch.value_or(0)) + " x " +
                             std::to_string(knobs_.value(edit::Quantity::accumulation).value_or(0));
  return "exactly " + knobs_.job() + (batch ? values : "");
}

std::optional<Bytes> EarlierRuns::need(const gpu::Machine& machine) const {
  std::optional<Bytes> need;
  for (const gpu::Card& card : machine.cards) {
    if (!card.memory) continue;
    const auto known =
        store_.find({.job = exact_command(), .card = card.name, .free = card.memory->total});
    if (!known || !known->peak) continue;
    const Bytes more = *known->peak * kNeedPercent / 100;
    need = std::max(need.value_or(Bytes{0}), std::min(more, known->free));
  }
  return need;
}

std::optional<EarlierRuns::Beginning> EarlierRuns::beginning(const Place& place,
                                                             long long min_batch) const {
  const auto first = knobs_.value(edit::Quantity::batch);
  if (!first || !knobs_.has(edit::Quantity::accumulation)) return {};
  const plan::Setup now = setup_of(knobs_.job(), place);
  const auto known = store_.find(now);
  if (!known || !known->values.contains("batch")) return {};
  if (now.free > known->tried_up_to * kMuchMorePercent / 100) return {};
  const long long worked = known->values.at("batch");
  if (worked >= *first) return {};
  const NextBatch begin = batch_up_to(
      worked, *first, knobs_.value(edit::Quantity::accumulation).value_or(1), min_batch);
  if (!begin.batch) return {};
  return Beginning{.batch = *begin.batch,
                   .accumulation = *begin.accumulation,
                   .when = known->when,
                   .stored = known->values};
}

void EarlierRuns::remember_batch(const Place& place, long long batch, long long accumulation,
                                 std::optional<Bytes> peak) const {
  store_.remember(setup_of(knobs_.job(), place), {{"batch", batch}, {"accumulation", accumulation}},
                  peak);
}

void EarlierRuns::remember_use(const Place& place, Bytes peak) const {
  store_.remember(setup_of(exact_command(), place), {}, peak);
}

void EarlierRuns::forget(const Place& place, const Beginning& beginning) const {
  store_.forget(setup_of(knobs_.job(), place), beginning.stored);
}

}  // namespace headroom::supervise
