#include "headroom/train/step.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <exception>
#include <limits>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/failure.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/train/detail/adaptation.h"
#include "headroom/train/detail/pricing.h"
#include "headroom/train/detail/transaction.h"

namespace headroom::train {

class Step::State {
 public:
  State(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
        const StepOptions& given);

  void prepare(const Tensors& batch);
  Committed run(const Tensors& batch);
  [[nodiscard]] Plan first_plan(std::int64_t rows) const;

  detail::Transaction transaction;
  Plan plan;
  std::optional<Prices> prices;
  std::string why_unpriced = "no step has run yet";
  std::optional<Failure> last_failure;

 private:
  [[nodiscard]] Work work_of(const Tensors& batch) const;
  [[nodiscard]] std::optional<memory::GpuMemoryStats> memory_now() const;
  [[nodiscard]] static std::optional<Bytes> card_of(
      const std::optional<memory::GpuMemoryStats>& now);
  void price(const Tensors& batch);
  [[nodiscard]] Failure failure_of(const oom::Judgement& judgement, const Work& work) const;
  [[nodiscard]] Event event_of(const Failure& failure) const;
  [[nodiscard]] std::optional<Ladder::Move> change_before(const Work& work,
                                                          std::optional<Bytes> card);
  void try_until_committed(const Tensors& batch, const Work& work, Committed& done);
  void take(const Ladder::Move& move, std::vector<Event>& events);
  void tell(std::vector<Event>& events, Event event) const;

  StepOptions options_;
  Ladder ladder_;
  std::optional<detail::Adaptation> adaptation_;
  double priced_elements_ = 0;  // of a row
  bool is_prepared_ = false, is_first_ = true;
};

namespace {

double elements_of_row(const Tensors& batch) {
  double elements = 0;
  for (const at::Tensor& one : batch)
    if (one.defined())
      elements += static_cast<double>(one.numel()) / static_cast<double>(one.size(0));
  return elements;
}

}  // namespace

Step::State::State(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
                   const StepOptions& given)
    : transaction(module, optimizer, std::move(objective), given),
      plan(given.plan),
      options_(given),
      ladder_(given.ladder) {
  LadderOptions able = given.ladder;
  able.checkpointing = able.checkpointing && transaction.objective().can_checkpoint;
  able.fused_loss = able.fused_loss && transaction.objective().can_fuse_loss;
  able.offload = able.offload && !transaction.device().is_cpu();
  able.allocator = able.allocator && !transaction.device().is_cpu();
  if (given.ladder.elsewhere)
    able.elsewhere = [this] {
      std::vector<Elsewhere> others = options_.ladder.elsewhere();
      std::erase_if(others,
                    [&](const auto& one) { return one.device == transaction.device().str(); });
      return others;
    };
  ladder_ = Ladder(able);
}

// ---- Before the first step ----

void Step::State::prepare(const Tensors& batch) {
  if (is_prepared_) return;
  is_prepared_ = true;
  static_cast<void>(detail::rows_in(batch));
  priced_elements_ = elements_of_row(batch);
  price(batch);
  if (prices) ladder_.set_prices(&*prices);
  adaptation_.emplace(options_.plan, options_.grow_after, ladder_, prices ? &*prices : nullptr);
}

void Step::State::price(const Tensors& batch) {
  if (!options_.prices) {
    why_unpriced = "prices were not asked for";
    return;
  }
  if (transaction.device().is_cpu()) {
    why_unpriced = "a CPU has no memory of its own";
    return;
  }
  try {
    prices.emplace(detail::priced(transaction, batch, plan, ladder_.options()));
    why_unpriced.clear();
  } catch (const c10::Error& error) {
    why_unpriced = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why_unpriced = error.what();
  }
}

// ---- Memory now ----

Work Step::State::work_of(const Tensors& batch) const {
  return {.rows = detail::rows_in(batch), .scale = elements_of_row(batch) / priced_elements_};
}

std::optional<memory::GpuMemoryStats> Step::State::memory_now() const {
  if (transaction.device().is_cpu()) return {};
  return memory::get_gpu_memory_stats(transaction.device());
}

std::optional<Bytes> Step::State::card_of(const std::optional<memory::GpuMemoryStats>& now) {
  return now ? now->obtainable() : std::nullopt;
}

Failure Step::State::failure_of(const oom::Judgement& judgement, const Work& work) const {
  return {.plan = plan,
          .work = work,
          .asked = judgement.asked,
          .free = judgement.free,
          .cached = judgement.cached,
          .card = card_of(memory_now())};
}

Event Step::State::event_of(const Failure& failure) const {
  Event event{.kind = Event::Kind::oom,
              .step = transaction.commits() + 1,
              .asked = failure.asked,
              .free = failure.free,
              .cached = failure.cached,
              .from = plan,
              .to = plan};
  const auto now = memory_now();
  if (now && now->free && now->total) event.neighbours = *now->total - *now->free - now->reserved;
  return event;
}

// ---- A step ----

void Step::State::tell(std::vector<Event>& events, Event event) const {
  if (options_.on_event) options_.on_event(event);
  events.push_back(std::move(event));
}

void Step::State::take(const Ladder::Move& move, std::vector<Event>& events) {
  tell(events,
       {.kind = move.kind, .step = transaction.commits() + 1, .from = plan, .to = move.plan});
  plan = move.plan;
}

void Step::State::try_until_committed(const Tensors& batch, const Work& work, Committed& done) {
  for (;; ++done.attempts) {
    const std::exception_ptr failed = transaction.try_once(batch, plan);
    if (!failed) return;
    const oom::Judgement judgement = libtorch::judge(failed);
    if (!oom::is_out_of_memory(judgement)) std::rethrow_exception(failed);
    Failure& failure = last_failure.emplace(failure_of(judgement, work));
    tell(done.events, event_of(failure));
    if (!transaction.device().is_cpu()) memory::memory_of(transaction.device()).empty_cache();
    failure.card = card_of(memory_now());  // a neighbour may have what the cache had
    adaptation_->failed(plan, work);
    const auto move = ladder_.next(failure);
    if (!move) std::rethrow_exception(failed);
    take(*move, done.events);
  }
}

std::optional<Ladder::Move> Step::State::change_before(const Work& work,
                                                       std::optional<Bytes> card) {
  if (!options_.adapts) return {};
  if (std::exchange(is_first_, false) && plan == options_.plan)
    return card ? adaptation_->first(work, *card) : std::nullopt;
  return adaptation_->before(plan, work, card);
}

Plan Step::State::first_plan(std::int64_t rows) const {
  const auto card = card_of(memory_now());
  if (!options_.adapts || !card || plan != options_.plan) return plan;
  const auto move = adaptation_->first({.rows = rows}, *card);
  return move ? move->plan : plan;
}

Committed Step::State::run(const Tensors& batch) {
  prepare(batch);
  const Work work = work_of(batch);
  Committed done;
  const auto before = memory_now();
  if (const auto move = change_before(work, card_of(before))) take(*move, done.events);
  const Plan begun = plan;
  ladder_.begin_step();
  try_until_committed(batch, work, done);
  for (Event& event : done.events)
    event.spurious = event.kind == Event::Kind::oom && event.from == plan;
  done.step = transaction.commits();
  done.rows = work.rows;
  done.plan = plan;
  done.loss_ = transaction.loss();
  done.norm_ = transaction.norm();
  const auto after = memory_now();
  const std::int64_t retries =
      before && after && plan == begun ? after->retries - before->retries : 0;
  const auto thrash = adaptation_->after(plan, work, retries);
  if (options_.adapts && thrash) take(*thrash, done.events);
  return done;
}

// ---- Step ----

double Committed::loss() const {
  return loss_.item<double>();
}

double Committed::gradient_norm() const {
  return norm_.defined() ? norm_.item<double>() : std::numeric_limits<double>::quiet_NaN();
}

Step::Step(torch::nn::Module& module, optim::Optimizer& optimizer, Objective objective,
           const StepOptions& options)
    : state_(std::make_unique<State>(module, optimizer, std::move(objective), options)) {}
Step::~Step() = default;

void Step::prepare(const Tensors& batch) {
  state_->prepare(batch);
}
Committed Step::run(const Tensors& batch) {
  return state_->run(batch);
}
Plan Step::first_plan(std::int64_t rows) const {
  return state_->first_plan(rows);
}
void Step::set_plan(const Plan& plan) {
  state_->plan = plan;
}
const Plan& Step::plan() const {
  return state_->plan;
}
const Prices* Step::prices() const {
  return state_->prices ? &*state_->prices : nullptr;
}
const std::string& Step::why_unpriced() const {
  return state_->why_unpriced;
}
const Failure* Step::last_failure() const {
  return state_->last_failure ? &*state_->last_failure : nullptr;
}
std::int64_t Step::steps() const {
  return state_->transaction.commits();
}
void Step::set_steps(std::int64_t steps) {
  state_->transaction.set_commits(steps);
}
c10::Device Step::device() const {
  return state_->transaction.device();
}
optim::LossScaler* Step::scaler() {
  auto& scaler = state_->transaction.scaler();
  return scaler ? &*scaler : nullptr;
}
torch::nn::Module& Step::module() {
  return state_->transaction.module();
}
optim::Optimizer& Step::optimizer() {
  return state_->transaction.optimizer();
}

}  // namespace headroom::train
