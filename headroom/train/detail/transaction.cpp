#include "headroom/train/detail/transaction.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/host_memory.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/settle.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/memory/device_memory.h"
#include "headroom/memory/history.h"
#include "headroom/optim/clip.h"
#include "headroom/train/detail/checks.h"

namespace headroom::train::detail {
namespace {

using at::Tensor;

std::vector<Tensor> all_of(const std::vector<torch::nn::Module*>& modules) {
  std::vector<Tensor> all;
  for (const torch::nn::Module* module : modules)
    for (const auto& [name, tensor] : libtorch::tensors_of(*module)) all.push_back(tensor);
  return all;
}

}  // namespace

Transaction::Transaction(torch::nn::Module& module, optim::Optimizer& optimizer,
                         Objective objective, const StepOptions& options, Place place)
    : module_(module),
      modules_{&module},
      optimizer_(optimizer),
      objective_(std::move(objective)),
      options_(options),
      place_(std::move(place)),
      home_(c10::DeviceType::CPU),
      device_(home_) {
  modules_.insert(modules_.end(), objective_.also.begin(), objective_.also.end());
  if (std::find(modules_.begin(), modules_.end(), nullptr) != modules_.end())
    throw UsageError(expectation("Step", "modules in Objective::also", "a null pointer"));
  if (!objective_.part && (is_split() || !objective_.loss))
    throw UsageError(expectation(
        "Step", is_split() ? "a part in the objective of each stage" : "an objective with a loss",
        "none"));
  check(options, optimizer);
  check(options.plan, objective_);
  lasting_ = keeping_what_lasts({}, options.plan);
  if (!is_split()) check_trained(optimizer, module.parameters());
  if (options.scaling) scaler_.emplace(*options.scaling);
  const Tensors places =
      optimizer.parameters().empty() ? all_of({&module}) : optimizer.parameters();
  if (places.empty())
    throw UsageError(expectation("Step", "parameters in each stage", "one without"));
  home_ = device_ = places.front().device();
  check_place();
  if (!is_alone() && !optimizer.can_commit())
    throw UsageError(expectation("Step",
                                 "an optimizer that commits without memory, for several "
                                 "ranks",
                                 "one of the forms loop or foreach", "OptimizerForm::fused"));
  optimizer.protect(!optimizer.can_commit());
  meet_others();
  for (std::size_t group = 0; group < optimizer.groups(); ++group)
    rates_.push_back(optimizer.learning_rate(group));
}

// A dry run pretends that they are there.
void Transaction::meet_others(std::optional<std::vector<Tensors>> given) {
  const parallel::Ranks& ranks = place_.ranks;
  ties_ = Ties(ranks.stages, place_.tied);
  if (ranks.replicas.size() > 1) {
    Tensors summed = optimizer_.parameters();
    for (const Tensor& copy : ties_.copies()) summed.push_back(copy);
    if (!summed.empty()) reducer_.emplace(summed, ranks.replicas);
  }
  const int stage = ranks.stages.rank();
  if (stage > 0)
    before_ = is_dry_ ? parallel::Border::alone(std::move(given))
                      : parallel::Border(ranks.stages, stage - 1);
  if (stage + 1 < ranks.stages.size())
    after_ = is_dry_ ? parallel::Border::alone({}) : parallel::Border(ranks.stages, stage + 1);
}

void Transaction::check_place() const {
  detail::check_place(optimizer_, module_.parameters(), device_);
}

bool Transaction::can(const std::string& technique) const {
  if (technique == kOffload) return !device_.is_cpu();
  return objective_.techniques.contains(technique);
}

// A loss scaler looks for itself whether gradients are finite.
bool Transaction::needs_norm() const {
  return options_.max_grad_norm > 0 || (options_.refuse_non_finite && !scaler_);
}

Tensors Transaction::states() const {
  Tensors all;
  for (std::size_t i = 0; i < optimizer_.parameters().size(); ++i)
    for (const auto& [name, state] : optimizer_.state(i)) all.push_back(state);
  return all;
}

Tensor Transaction::norm() const {
  return needs_norm() ? kept_->norm : Tensor();
}

std::int64_t Transaction::terms(const Tensors& rows) const {
  return objective_.terms ? objective_.terms(rows) : rows_in(rows);
}

PhaseNow Transaction::phase(trace::Phase phase) const {
  trace::Recorder* const recorder = memory::recorder_of(device_);
  if (recorder == nullptr) return {};
  recorder->set_step(static_cast<std::uint32_t>(commits_ + 1));
  return std::make_unique<trace::PhaseScope>(*recorder, phase);
}

void Transaction::start_anew_on(c10::Device card, std::optional<std::vector<Tensors>> given) {
  is_dry_ = true;
  writes_.copy_as_later();
  kept_.reset();
  offload_.reset();
  followed_.reset();
  home_ = device_ = card;
  place_.ranks = parallel::alone(place_.ranks);
  writes_.forget();
  libtorch::move_shapes(modules_, card);
  for (std::size_t i = 0; i < optimizer_.parameters().size(); ++i) optimizer_.set_state(i, {});
  if (options_.scaling) scaler_.emplace(*options_.scaling);
  meet_others(std::move(given));
}

// ---- The form that a plan needs ----

void Transaction::follow(const Plan& plan) {
  if (followed_ == plan) return;
  followed_.reset();  // where this throws, the next attempt follows its plan from the start
  if (adds_what_lasts(plan, lasting_)) writes_.forget();
  lasting_ = keeping_what_lasts(lasting_, plan);
  move_to(plan.device.empty() ? home_ : c10::Device(plan.device));
  if (!plan.allocator.empty() && !is_dry_ && !device_.is_cpu())
    memory::memory_of(device_).change_settings(plan.allocator);
  if (objective_.follow) objective_.follow(plan);
  offload_.reset();
  std::optional<Bytes> host;  // all ranks share it
  if (const auto all = is_dry_ ? std::nullopt : host_memory_to_use())
    host = Bytes{all->count / place_.ranks.all.size()};
  if (plan.has(kOffload))
    offload_.emplace(
        all_of(modules_),
        nn::OffloadOptions{.budget = host, .pinned = device_.is_cuda(), .copies = !is_dry_});
  followed_ = plan;
}

void Transaction::move_to(c10::Device device) {
  if (device == device_) return;
  std::vector<optim::State> states;
  for (std::size_t i = 0; i < optimizer_.parameters().size(); ++i) {
    states.push_back(optimizer_.state(i));
    for (auto& [name, tensor] : states.back()) tensor = tensor.to(device);
  }
  libtorch::move(modules_, device);
  for (std::size_t i = 0; i < states.size(); ++i) optimizer_.set_state(i, std::move(states[i]));
  kept_.reset();
  writes_.forget();
  device_ = device;
}

// ---- An attempt ----

// The loss of a rank that is alone may draw numbers anywhere.
std::vector<c10::Device> Transaction::own_devices() const {
  return is_alone() ? libtorch::devices_in_use() : std::vector{device_};
}

void Transaction::prepare() {
  if (kept_) return;
  optimizer_.reserve();
  if (scaler_) scaler_->reserve(optimizer_, device_);
  if (reducer_) reducer_->reserve();
  ties_.reserve();
  const auto number = at::TensorOptions(device_).dtype(at::kDouble);
  kept_.reset(new Kept{Buffers(modules_, place_.ranks.replicas), at::zeros({}, number),
                       at::zeros({}, number), is_alone() ? Tensor() : at::zeros({3}, number)});
}

// A result of an earlier step may still have its numbers; otherwise their memory serves again.
void Transaction::begin_numbers() {
  for (Tensor* number : {&kept_->loss, &kept_->norm})
    if (number->use_count() > 1) *number = at::empty_like(*number);
  kept_->loss.zero_();
}

void Transaction::begin_parts(const Tensors& batch, bool pools, libtorch::RandomState& random) {
  kept_->buffers.begin(pools);
  begin_numbers();
  kept_->buffers.for_each([&](const Tensor& buffer) { writes_.leave_out(buffer); });
  writes_.leave_out(kept_->loss);
  writes_.begin(batch, random);
}

void Transaction::run_parts(const Tensors& batch, const Plan& plan, libtorch::RandomState& random,
                            FirstFailure& failure) {
  const parallel::Ranks& ranks = place_.ranks;
  const std::int64_t rows = rows_in(batch);
  const optim::Rows mine = is_dry_ ? optim::Rows{0, rows} : rows_of_replica(rows, ranks.replicas);
  const std::vector<optim::Rows> parts =
      mine.count == 0 ? std::vector<optim::Rows>() : parts_of(mine.count, plan);
  std::int64_t in_all = 1;
  failure.then([&] { in_all = std::max(terms(batch), in_all); });
  const bool pools = parts.size() > 1 || ranks.replicas.size() > 1;
  std::optional<libtorch::SavedTensorScope> waiting;
  if (spills()) waiting.emplace(spill_->hooks());
  std::optional<Writes::Watch> watch;
  std::optional<libtorch::CallScope> pooled;
  failure.then([&] {
    begin_parts(batch, pools, random);
    watch.emplace(writes_);
    if (pools) pooled.emplace(kept_->buffers, libtorch::CallScope::Of::writing);
  });
  for (std::optional<parallel::Border>* border : {&before_, &after_})
    if (*border) (*border)->start();
  const auto count = static_cast<int>(parts.size());
  for (const plan::Pass& pass :
       plan::passes(place_.pipeline, ranks.stages.rank(), ranks.stages.size(), count)) {
    if (on_pass_) on_pass_();
    const optim::Rows& part = parts[static_cast<std::size_t>(pass.part)];
    if (pass.is_forward)
      forward(some_rows(batch, {mine.first + part.first, part.count}), in_all, failure);
    else
      backward(pass.part + 1 == count, failure);
  }
  if (on_pass_) on_pass_();
  for (std::optional<parallel::Border>* border : {&before_, &after_})
    if (*border) failure.always([&] { (*border)->end(); });
}

void Transaction::drop_gradients() {
  optimizer_.zero_grad();
  ties_.drop_gradients();
}

void Transaction::end_alone() {
  drop_gradients();
  writes_.commit();
}

// The gradients, and what the forward passes left in buffers, of all replicas.
void Transaction::add_up(const Tensors& batch, FirstFailure& failure) {
  const int replicas = place_.ranks.replicas.size();
  const std::int64_t last = std::min<std::int64_t>(rows_in(batch), replicas) - 1;
  if (reducer_) failure.always([&] { reducer_->finish(!failure); });
  if (replicas > 1)
    failure.always([&] { kept_->buffers.add_up(!failure, static_cast<int>(last)); });
  ties_.add_up(failure);
}

// Each replica adds its share of the loss. Replicas have the same gradients: the stages of the
// first one are counted.
void Transaction::share_numbers(const Tensor& norm, bool ok) {
  if (is_alone()) return;
  const at::NoGradGuard no_grad;
  const bool splits = place_.ranks.stages.size() > 1,
             counts = ok && splits && place_.ranks.replicas.rank() == 0;
  const auto number = [&](std::int64_t i) { return kept_->shared.select(0, i); };
  FirstFailure failure;
  failure.then([&] {
    kept_->shared.zero_();
    if (ok) number(0).copy_(kept_->loss);
    if (counts && scaler_) number(1).copy_(scaler_->not_finite(optimizer_));
    if (counts && norm.defined()) number(2).copy_(norm).square_();
  });
  failure.always([&] { place_.ranks.all.sum(kept_->shared); });
  failure.rethrow();
  kept_->loss.copy_(number(0));
  if (!ok || !splits) return;
  if (scaler_) scaler_->not_finite(optimizer_).copy_(number(1).clamp_max_(1));
  if (norm.defined()) norm.copy_(number(2).sqrt_());
}

void Transaction::clip(const Tensor& norm) {
  const bool refuses = options_.refuse_non_finite && !is_dry_;
  if (refuses) check_finite(kept_->loss, "loss");
  if (options_.max_grad_norm > 0)
    optim::clip_to_norm(optimizer_.parameters(), options_.max_grad_norm, norm);
  if (norm.defined()) kept_->norm.copy_(norm);
  if (refuses && !scaler_) check_finite(kept_->norm, "norm of the gradients");
}

// Everything before commit() can be dropped or put back. Where one rank cannot follow the plan,
// none begins. Returns the phase of the optimizer, which lasts until the commit.
PhaseNow Transaction::compute(const Tensors& batch, const Plan& plan, libtorch::RandomState& random,
                              FirstFailure& failure) {
  failure.then([&] {
    const PhaseNow begun = phase(trace::Phase::init);
    follow(plan);
    prepare();
  });
  if (agreed_ != plan) {
    agreed_.reset();
    if (place_.ranks.all.any(static_cast<bool>(failure))) {
      failure.then([] { throw FailedElsewhere(); });
      return {};
    }
    agreed_ = plan;
  }
  drop_gradients();
  failure.always([&] { run_parts(batch, plan, random, failure); });
  if (failure && !is_alone()) libtorch::settle(own_devices());
  PhaseNow optimizer = phase(trace::Phase::optimizer);
  add_up(batch, failure);
  Tensor norm;
  failure.then([&] {
    if (scaler_) scaler_->unscale(optimizer_);
    if (needs_norm()) norm = optim::gradient_norm(optimizer_.parameters());
  });
  failure.always([&] { share_numbers(norm, !failure); });
  failure.then([&] {
    clip(norm);
    kept_->buffers.finish();
    if (spills()) spill_->want(states());  // a commit requests no memory
  });
  return optimizer;
}

// A dry run.
void Transaction::attempt(const Tensors& batch, const Plan& plan, libtorch::RandomState& random) {
  FirstFailure failure;
  const PhaseNow optimizer = compute(batch, plan, random, failure);
  failure.then([&] { commit(); });
  failure.rethrow();
}

void Transaction::update() {
  for (std::size_t group = 0; options_.schedule && group < rates_.size(); ++group)
    if (rates_[group])
      optimizer_.set_learning_rate(*rates_[group] * options_.schedule(commits_), group);
  if (scaler_) {
    scaler_->commit(optimizer_);
    scaler_->update();
  } else if (optimizer_.can_commit()) {
    optimizer_.commit();
  } else {
    optimizer_.step();
  }
}

void Transaction::commit() {
  update();
  ties_.hand_over();
  writes_.commit();
  ++commits_;
}

void Transaction::undo(const libtorch::RandomState& random) {
  libtorch::settle(own_devices());
  drop_gradients();
  if (scaler_) scaler_->abandon();
  if (kept_) kept_->buffers.restore();
  writes_.undo();
  random.restore();
}

std::exception_ptr Transaction::try_once(const Tensors& batch, const Plan& plan) {
  libtorch::RandomState random(own_devices(), /*with_cpu=*/is_alone());
  FirstFailure failure;
  PhaseNow optimizer = compute(batch, plan, random, failure);
  if (place_.ranks.all.any(static_cast<bool>(failure)))
    failure.then([] { throw FailedElsewhere(); });
  failure.then([&] { commit(); });
  optimizer.reset();
  // Outside of the handler: its exception holds nothing of the attempt.
  if (failure)
    undo(random);
  else
    drop_gradients();
  return failure.get();
}

}  // namespace headroom::train::detail
