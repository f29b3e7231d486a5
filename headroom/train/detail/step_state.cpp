#include "headroom/train/detail/step_state.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/device_memory.h"
#include "headroom/train/detail/checks.h"
#include "headroom/train/detail/pricing.h"

namespace headroom::train {
namespace {

// The first line of its message.
std::string sentence_of(const std::exception_ptr& failure) {
  std::string text = "an exception of a type of its own";
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
  }
  return text.substr(0, text.find('\n'));
}

double elements_of_row(const Tensors& batch) {
  double elements = 0;
  for (const at::Tensor& one : batch)
    if (one.defined())
      elements += static_cast<double>(one.numel()) / static_cast<double>(one.size(0));
  return elements;
}

}  // namespace

Step::State::State(Team team, const StepOptions& given)
    : ranks(std::move(team), given),
      plan(given.plan),
      options_(given),
      ladder_(given.ladder),
      wish_(given.plan) {
  LadderOptions able = given.ladder;
  std::erase_if(able.techniques, [&](const std::string& name) { return !ranks.can(name); });
  able.allocator = able.allocator && !is_on_cpu();
  if (ranks.size() > 1) able.elsewhere = nullptr;
  if (const int replicas = ranks.layout().replicas; able.host_memory && replicas > 1)
    able.host_memory = [this, replicas]() -> std::optional<Bytes> {  // they share the host
      const auto all = options_.ladder.host_memory();
      return all ? std::optional(Bytes{all->count / replicas}) : std::nullopt;
    };
  if (able.elsewhere)
    able.elsewhere = [this] {
      std::vector<Elsewhere> others = options_.ladder.elsewhere();
      std::erase_if(others,
                    [&](const auto& one) { return one.device == ranks.first().device().str(); });
      return others;
    };
  ladder_ = Ladder(able);
}

// ---- Before the first step ----

void Step::State::prepare(const Tensors& batch) {
  if (is_prepared_) return;
  static_cast<void>(detail::rows_in(batch));
  ranks.check_place();
  is_prepared_ = true;
  priced_elements_ = elements_of_row(batch);
  price(batch);
  if (options_.spill && !is_on_cpu()) begin_to_spill();
  if (prices) ladder_.set_prices(&*prices);
  adaptation_.emplace(options_.plan, options_.grow_after, ladder_, prices ? &*prices : nullptr);
}

// The child is another process, so its failures do not show in this one.
constexpr const char* kFailed =
    "the step fails in a dry run, where tensors on the card have no values: ";

void Step::State::price(const Tensors& batch) {
  if (!options_.prices) {
    why_unpriced = "pricing is switched off";
    return;
  }
  if (is_on_cpu()) {
    why_unpriced = "a CPU has no memory of its own";
    return;
  }
  try {
    const Tensors of_a_rank = detail::some_rows(batch, {0, rows_of_rank(detail::rows_in(batch))});
    prices.emplace(detail::priced(ranks, of_a_rank, plan, ladder_.options()));
    why_unpriced.clear();
  } catch (const UnavailableError& error) {
    why_unpriced = error.what();
  } catch (const c10::Error& error) {
    why_unpriced = std::string(kFailed) + error.what_without_backtrace();
  } catch (const std::exception& error) {
    why_unpriced = kFailed + std::string(error.what());
  }
}

// ---- What waits on the host ----

void Step::State::begin_to_spill() {
  spill_.emplace(*options_.spill);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].spill_by(&*spill_);
}

std::optional<memory::SpillUse> Step::State::spilled() const {
  return spill_ ? std::optional(spill_->use()) : std::nullopt;
}

std::optional<Event> Step::State::news_of_spill() {
  if (!spill_) return {};
  const memory::SpillUse before = std::exchange(told_, spill_->use());
  if (told_.rescued <= before.rescued) return {};
  return Event{.kind = Event::Kind::spill,
               .step = ranks.first().commits(),
               .requests = told_.rescued - before.rescued,
               .moved = told_.moved - before.moved,
               .from = plan,
               .to = plan};
}

// ---- Memory now ----

std::int64_t Step::State::rows_of_rank(std::int64_t rows) const {
  return ranks.layout().rows_of_largest(rows);
}

Work Step::State::work_of(const Tensors& batch) const {
  return {.rows = rows_of_rank(detail::rows_in(batch)),
          .scale = elements_of_row(batch) / priced_elements_};
}

std::optional<memory::GpuMemoryStats> Step::State::memory_now(std::size_t rank) const {
  const c10::Device device = ranks[rank].device();
  if (device.is_cpu()) return {};
  return memory::get_gpu_memory_stats(device);
}

// The same stages of all replicas need the same: the card that has the least decides.
std::optional<PerStage> Step::State::usable() const {
  std::vector<Bytes> least(static_cast<std::size_t>(ranks.layout().stages),
                           Bytes{std::numeric_limits<std::int64_t>::max()});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto card = card_of(memory_now(rank));
    if (!card) return {};
    Bytes& of_stage = least[stage_of(rank)];
    of_stage = std::min(of_stage, *card);
  }
  return PerStage(std::move(least));
}

std::size_t Step::State::stage_of(std::size_t rank) const {
  return static_cast<std::size_t>(ranks.layout().stage_of(static_cast<int>(rank)));
}

// Requests that the allocators served only after they emptied their caches.
std::optional<std::int64_t> Step::State::retries() const {
  std::optional<std::int64_t> all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (const auto now = memory_now(rank)) all = all.value_or(0) + now->retries;
  return all;
}

// With a limit from outside, the allocator's own is only what that limit has granted so far.
std::optional<Bytes> Step::State::card_of(const std::optional<memory::GpuMemoryStats>& now) const {
  if (!now) return {};
  const auto most = options_.usable ? options_.usable(now->device) : std::nullopt;
  if (!most || !now->free) return now->obtainable();
  return std::min(*now->free + now->reserved, *most);
}

bool Step::State::reserve(const Work& work) const {
  const auto needed = options_.reserve && prices ? prices->needed(plan, work) : std::nullopt;
  bool all = true;
  for (std::size_t rank = 0; needed && rank < ranks.size(); ++rank) {
    const c10::Device device =
        plan.device.empty() ? ranks[rank].device() : c10::Device(plan.device);
    if (!device.is_cpu()) all = options_.reserve(device, needed->of(stage_of(rank))) && all;
  }
  return all;
}

Failure Step::State::failure_of(const oom::Judgement& judgement, const Work& work) const {
  const auto now = memory_now(ranks.failed());
  auto free = judgement.free;
  if (free && now && now->limit)
    free = std::min(*free, std::max(Bytes{}, *now->limit - now->reserved));
  return {.plan = plan,
          .work = work,
          .asked = judgement.asked,
          .free = free,
          .cached = judgement.cached,
          .card = usable(),
          .rank = ranks.failed(),
          .stage = stage_of(ranks.failed())};
}

Event Step::State::event_of(const Failure& failure) const {
  Event event{.kind = Event::Kind::oom,
              .step = step(),
              .asked = failure.asked,
              .free = failure.free,
              .cached = failure.cached,
              .from = plan,
              .to = plan};
  if (ranks.size() > 1) event.device = ranks[ranks.failed()].device().str();
  const auto now = memory_now(ranks.failed());
  if (now && now->free && now->total) event.neighbours = *now->total - *now->free - now->reserved;
  return event;
}

// ---- A step ----

void Step::State::tell(std::vector<Event>& events, Event event) const {
  if (options_.on_event) options_.on_event(event);
  events.push_back(std::move(event));
}

void Step::State::take(const Ladder::Move& move, std::vector<Event>& events,
                       const std::string& why) {
  tell(events, {.kind = move.kind, .step = step(), .from = plan, .to = move.plan, .why = why});
  plan = move.plan;
}

// The plan is the caller's, or parts as small as these have run in this form, or have been priced.
bool Step::State::has_run(const Work& work) const {
  const std::int64_t fewest = smallest_part(plan, work.rows);
  if (plan == wish_ || (prices && prices->needed(plan, work) && fewest >= prices->fewest_rows()))
    return true;
  const auto found = fewest_run_.find(plan.techniques);
  return found != fewest_run_.end() && fewest >= found->second;
}

// The fastest that fits now; where that is not known, the wish.
Plan Step::State::plan_after_wait(const Work& work) const {
  const auto cards = usable();
  return cards ? ladder_.fastest(options_.plan, work, *cards).value_or(plan) : options_.plan;
}

// Memory was not enough: the next plan of the ladder, or this one again after a wait.
Ladder::Move Step::State::after_out_of_memory(const oom::Judgement& judgement, const Work& work,
                                              const Failed& failed, std::vector<Event>& events) {
  Failure& failure = last_failure.emplace(failure_of(judgement, work));
  failure.otherwise = failed.otherwise;
  tell(events, event_of(failure));
  if (const c10::Device device = ranks[ranks.failed()].device(); !device.is_cpu())
    memory::memory_of(device).empty_cache();
  if (spill_) spill_->set_idle(ranks.states());
  failure.card = usable();  // a neighbour may have taken the cache's memory
  adaptation_->failed(plan, work);
  if (const auto move = ladder_.next(failure)) return *move;
  if (!options_.wait_for_memory || !options_.wait_for_memory(failure))
    std::rethrow_exception(failed.of_memory);
  ladder_.begin_step();
  return {Event::Kind::retry, plan_after_wait(work)};
}

// A plan of the step's own that fails otherwise, as batch norm does at one row, is left for a
// larger one. The caller's plan, and one that has run, fail for the caller to see.
Ladder::Move Step::State::after_other_failure(const std::exception_ptr& failure, const Work& work,
                                              Failed& failed) {
  if (has_run(work) || detail::is_complaint(failure)) std::rethrow_exception(failure);
  failed.otherwise = to_string(plan) + ": " + sentence_of(failure);
  failed.too_few = smallest_part(plan, work.rows);
  if (failed.of_memory) last_failure->otherwise = failed.otherwise;
  if (const auto move = ladder_.larger_than(plan, work)) return *move;
  std::rethrow_exception(failed.of_memory ? failed.of_memory : failure);
}

void Step::State::try_until_committed(const Tensors& batch, const Work& work, Committed& done) {
  Failed failed;
  for (;; ++done.attempts) {
    plan = keeping_what_lasts(plan, ranks.lasting());
    const std::exception_ptr failure = ranks.try_once(batch, plan);
    if (!failure) break;
    const oom::Judgement judgement = libtorch::judge(failure);
    if (!oom::is_out_of_memory(judgement)) {
      take(after_other_failure(failure, work, failed), done.events, sentence_of(failure));
      continue;
    }
    failed.of_memory = failure;
    take(after_out_of_memory(judgement, work, failed, done.events), done.events);
    static_cast<void>(reserve(work));  // without it the attempt fails, and the next is smaller
  }
  if (failed.too_few > 0) ladder_.set_fewest_rows(failed.too_few + 1);
  const std::int64_t fewest = smallest_part(plan, work.rows);
  auto& known = fewest_run_.try_emplace(plan.techniques, fewest).first->second;
  known = std::min(known, fewest);
}

std::optional<Ladder::Move> Step::State::change_before(const Work& work,
                                                       const std::optional<PerStage>& cards) {
  if (!options_.adapts) return {};
  if (!std::exchange(is_first_, false) || plan != options_.plan)
    return adaptation_->before(plan, work, cards);
  if (!cards) return {};
  const Plan first = adaptation_->first(work, *cards);
  if (adds_what_lasts(first, plan)) return Ladder::Move{Event::Kind::technique, first};
  plan = first;  // no event: nothing has changed
  return {};
}

Plan Step::State::first_plan(std::int64_t rows, const std::optional<PerStage>& cards) const {
  if (!options_.adapts || !cards || plan != options_.plan) return plan;
  return adaptation_->first({.rows = rows_of_rank(rows)}, *cards);
}

std::optional<Plan> Step::State::plan_without_spill(std::int64_t rows) const {
  const auto cards = usable();
  return cards ? ladder_.fastest(options_.plan, {.rows = rows_of_rank(rows)}, *cards)
               : std::nullopt;
}

std::optional<PricedPlan> Step::State::least_plan(std::int64_t rows,
                                                  std::optional<std::int64_t> least) const {
  LadderOptions options = ladder_.options();
  if (least) options.min_micro_batch = *least;
  return Ladder(options, prices ? &*prices : nullptr)
      .least(options_.plan, {.rows = rows_of_rank(rows)});
}

std::optional<Event> Step::State::shrink(std::int64_t rows) {
  const Plan smaller = detail::smaller_parts(ladder_, plan, {.rows = rows_of_rank(rows)});
  if (!options_.adapts || smaller == plan) return {};
  const Event event{.kind = Event::Kind::shrink, .step = step() - 1, .from = plan, .to = smaller};
  plan = smaller;
  return event;
}

void Step::State::set_plan(const Plan& given) {
  detail::check(given, ranks.first().objective());
  plan = wish_ = keeping_what_lasts(given, ranks.lasting());
}

Committed Step::State::run(const Tensors& batch) {
  prepare(batch);
  ranks.check_place();
  const Work work = work_of(batch);
  Committed done;
  if (options_.prices && !prices && !is_on_cpu() && !std::exchange(told_unpriced_, true))
    tell(done.events, {.kind = Event::Kind::unpriced,
                       .step = step(),
                       .from = plan,
                       .to = plan,
                       .why = why_unpriced});
  const auto retries_before = retries();
  const Plan last = plan;
  if (const auto move = change_before(work, usable())) take(*move, done.events);
  if (!reserve(work) && options_.adapts)  // another job was faster
    if (const auto move = adaptation_->before(plan, work, usable())) {
      take(*move, done.events);
      static_cast<void>(reserve(work));
    }
  const Plan begun = plan;
  ladder_.begin_step();
  try {
    try_until_committed(batch, work, done);
  } catch (...) {
    plan = keeping_what_lasts(last, ranks.lasting());
    throw;
  }
  for (Event& event : done.events)
    event.spurious = event.kind == Event::Kind::oom && event.from == plan;
  if (spill_) spill_->end_step(ranks.states());
  if (const auto news = news_of_spill()) tell(done.events, *news);
  done.step = step() - 1;
  done.rows = detail::rows_in(batch);
  done.plan = plan;
  done.micro_batch = largest_part(plan, work.rows);
  done.loss_ = ranks.first().loss();
  done.norm_ = ranks.first().norm();
  const auto retries_after = retries();
  const std::int64_t more =
      retries_before && retries_after && plan == begun ? *retries_after - *retries_before : 0;
  const auto thrash = adaptation_->after(plan, work, more);
  if (options_.adapts && thrash) take(*thrash, done.events);
  return done;
}

}  // namespace headroom::train
