#include "headroom/train/step.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/settle.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/optim/accumulation.h"
#include "headroom/optim/clip.h"
#include "headroom/train/detail/buffers.h"

namespace headroom::train {

using at::Tensor;

class Step::State {
 public:
  State(torch::nn::Module& of, optim::Optimizer& by, Objective to_minimise, const StepOptions& given);

  Committed run(const Tensors& batch);

  torch::nn::Module& module;
  optim::Optimizer& optimizer;
  Plan plan;
  std::int64_t steps = 0;
  std::optional<optim::LossScaler> scaler;

 private:
  // Tensors that an attempt needs and that stay: made by the first, all of them or none.
  struct Kept {
    detail::Buffers buffers;
    Tensor loss, norm;
  };

  [[nodiscard]] std::int64_t terms(const Tensors& rows) const;
  void prepare();
  void attempt(const Tensors& batch);
  void forward_and_backward(const Tensors& rows, std::int64_t in_all);
  void update();
  void undo(const libtorch::RandomState& random);
  // Null: it has committed.
  [[nodiscard]] std::exception_ptr try_once(const Tensors& batch);
  void trim() const;
  [[nodiscard]] Event facts_of(const oom::Judgement& judgement) const;
  void tell(std::vector<Event>& events, Event event) const;

  Objective objective_;
  StepOptions options_;
  Ladder ladder_;
  c10::Device device_;
  std::vector<std::optional<double>> rates_;  // of the optimizer's groups, without the schedule
  std::unique_ptr<Kept> kept_;
};

namespace {

// The rows of a batch in as few parts as the plan allows. Nearly equal ones need less memory than full
// ones and a small rest, and no layer that needs several rows gets a single one.
std::vector<optim::Rows> parts(std::int64_t rows, const Plan& plan) {
  const std::int64_t most = plan.micro_batch == 0 ? rows : std::min(plan.micro_batch, rows);
  const std::int64_t count = (rows + most - 1) / most;
  std::vector<optim::Rows> all;
  for (std::int64_t i = 0, first = 0; i < count; ++i) {
    const std::int64_t size = rows / count + (i < rows % count ? 1 : 0);
    all.push_back({first, size});
    first += size;
  }
  return all;
}

Tensors rows_of(const Tensors& batch, const optim::Rows& rows) {
  Tensors some;
  for (const Tensor& one : batch) some.push_back(one.defined() ? one.narrow(0, rows.first, rows.count) : one);
  return some;
}

Tensors put_on(const Tensors& rows, c10::Device device) {
  Tensors there;
  for (const Tensor& one : rows)
    there.push_back(one.defined() ? one.to(device, /*non_blocking=*/one.device().is_cpu() && one.is_pinned())
                                  : one);
  return there;
}

std::int64_t rows_in(const Tensors& batch) {
  std::optional<std::int64_t> rows;
  for (const Tensor& one : batch) {
    if (!one.defined()) continue;
    if (one.dim() == 0 || (rows && one.size(0) != *rows))
      throw UsageError(expectation("Step::run", "tensors with the same number of rows, at least one",
                                   one.dim() == 0 ? "a number"
                                                  : std::to_string(*rows) + " and " +
                                                        std::to_string(one.size(0)) + " rows"));
    rows = one.size(0);
  }
  if (!rows || *rows == 0)
    throw UsageError(expectation("Step::run", "a batch with rows", "one without"));
  return *rows;
}

}  // namespace

Step::State::State(torch::nn::Module& of, optim::Optimizer& by, Objective to_minimise,
                   const StepOptions& given)
    : module(of),
      optimizer(by),
      plan(given.plan),
      objective_(std::move(to_minimise)),
      options_(given),
      ladder_(given.ladder),
      device_(c10::DeviceType::CPU) {
  if (!objective_.loss) throw UsageError(expectation("Step", "an objective with a loss", "none"));
  if (optimizer.parameters().empty())
    throw UsageError(expectation("Step", "an optimizer with parameters", "none"));
  if (!(given.max_grad_norm >= 0))
    throw UsageError(expectation("Step", "a largest norm of 0 or more", std::to_string(given.max_grad_norm)));
  if (given.scaling) {
    if (!optimizer.can_commit() || !optimizer.takes_scale())
      throw UsageError(expectation("Step", "a fused optimizer for scaled losses", "another form",
                                   "OptimizerForm::fused"));
    scaler.emplace(*given.scaling);
  }
  device_ = optimizer.parameters().front().device();
  optimizer.protect(!optimizer.can_commit());
  for (std::size_t group = 0; group < optimizer.groups(); ++group)
    rates_.push_back(optimizer.learning_rate(group));
}

std::int64_t Step::State::terms(const Tensors& rows) const {
  return objective_.terms ? objective_.terms(rows) : rows_in(rows);
}

void Step::State::prepare() {
  if (kept_) return;
  optimizer.reserve();
  if (scaler) scaler->reserve(optimizer);
  const auto number = at::TensorOptions(device_).dtype(at::kDouble);
  kept_.reset(new Kept{detail::Buffers(module), at::zeros({}, number), at::zeros({}, number)});
}

void Step::State::forward_and_backward(const Tensors& rows, std::int64_t in_all) {
  Tensor share;
  {
    const Tensors here = put_on(rows, device_);
    std::optional<libtorch::AutocastScope> autocast;
    if (options_.autocast) autocast.emplace(device_.type(), *options_.autocast);
    share = optim::share_of_batch(objective_.loss(here), terms(rows), in_all);
  }
  kept_->loss.add_(share.detach());
  (scaler ? scaler->scale(share) : share).backward();
}

// Everything before update() can be dropped or put back; update() takes no memory.
void Step::State::attempt(const Tensors& batch) {
  prepare();
  optimizer.zero_grad();
  const std::vector<optim::Rows> all = parts(rows_in(batch), plan);
  const std::int64_t in_all = std::max<std::int64_t>(terms(batch), 1);
  kept_->buffers.begin(static_cast<std::int64_t>(all.size()));
  kept_->loss.zero_();
  {
    const detail::Buffers::Watch watch(kept_->buffers);
    for (const optim::Rows& part : all) forward_and_backward(rows_of(batch, part), in_all);
  }
  if (scaler) scaler->unscale(optimizer);
  if (options_.max_grad_norm > 0)
    kept_->norm.copy_(optim::clip_gradients(optimizer.parameters(), options_.max_grad_norm));
  kept_->buffers.finish();
  update();
}

void Step::State::update() {
  for (std::size_t group = 0; options_.schedule && group < rates_.size(); ++group)
    if (rates_[group]) optimizer.set_learning_rate(*rates_[group] * options_.schedule(steps), group);
  if (scaler) {
    scaler->commit(optimizer);
    scaler->update();
  } else if (optimizer.can_commit()) {
    optimizer.commit();
  } else {
    optimizer.step();
  }
}

void Step::State::undo(const libtorch::RandomState& random) {
  libtorch::settle(libtorch::devices_in_use());
  optimizer.zero_grad();
  if (scaler) scaler->abandon();
  if (kept_) kept_->buffers.restore();
  random.restore();
}

std::exception_ptr Step::State::try_once(const Tensors& batch) {
  const libtorch::RandomState random(libtorch::devices_in_use());
  std::exception_ptr failure;
  try {
    attempt(batch);
  } catch (...) {
    failure = std::current_exception();
  }
  // Outside of the handler: its exception holds nothing of the attempt.
  if (failure)
    undo(random);
  else
    optimizer.zero_grad();
  return failure;
}

void Step::State::trim() const {
  if (!device_.is_cpu()) memory::memory_of(device_).empty_cache();
}

Event Step::State::facts_of(const oom::Judgement& judgement) const {
  Event event{.kind = Event::Kind::oom, .step = steps + 1, .asked = judgement.asked, .from = plan, .to = plan};
  event.free = judgement.free;
  if (device_.is_cpu()) return event;
  const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(device_);
  event.cached = now.reserved - now.allocated;
  if (now.free && now.total) event.neighbours = *now.total - *now.free - now.reserved;
  return event;
}

void Step::State::tell(std::vector<Event>& events, Event event) const {
  if (options_.on_event) options_.on_event(event);
  events.push_back(std::move(event));
}

Committed Step::State::run(const Tensors& batch) {
  const std::int64_t rows = rows_in(batch);
  Committed done;
  for (;; ++done.attempts) {
    const std::exception_ptr failure = try_once(batch);
    if (!failure) break;
    const oom::Judgement judgement = libtorch::judge(failure);
    std::optional<Ladder::Move> move;
    if (oom::is_out_of_memory(judgement)) {
      tell(done.events, facts_of(judgement));
      trim();
      move = ladder_.next(plan, rows);
    }
    if (!move) {
      ladder_.end_step();
      std::rethrow_exception(failure);
    }
    tell(done.events, {.kind = move->kind, .step = steps + 1, .from = plan, .to = move->plan});
    plan = move->plan;
  }
  ladder_.end_step();
  for (Event& event : done.events)
    event.spurious = event.kind == Event::Kind::oom && event.from == plan;
  done.step = ++steps;
  done.rows = rows;
  done.plan = plan;
  done.loss_ = kept_->loss;
  if (options_.max_grad_norm > 0) done.norm_ = kept_->norm;
  return done;
}

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

Committed Step::run(const Tensors& batch) {
  return state_->run(batch);
}
void Step::set_plan(const Plan& plan) {
  state_->plan = plan;
}
const Plan& Step::plan() const {
  return state_->plan;
}
std::int64_t Step::steps() const {
  return state_->steps;
}
optim::LossScaler* Step::scaler() {
  return state_->scaler ? &*state_->scaler : nullptr;
}
torch::nn::Module& Step::module() {
  return state_->module;
}
optim::Optimizer& Step::optimizer() {
  return state_->optimizer;
}

}  // namespace headroom::train
