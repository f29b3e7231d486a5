#include "headroom/train/detail/transaction.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/base/host_memory.h"
#include "headroom/libtorch/autocast.h"
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

std::int64_t rows_in(const Tensors& batch) {
  std::optional<std::int64_t> rows;
  for (const Tensor& one : batch) {
    if (!one.defined()) continue;
    if (one.dim() == 0 || (rows && one.size(0) != *rows))
      throw UsageError(expectation("Step::run", "tensors with the same number of rows",
                                   one.dim() == 0 ? "a number"
                                                  : std::to_string(*rows) + " and " +
                                                        std::to_string(one.size(0)) + " rows"));
    rows = one.size(0);
  }
  if (!rows || *rows == 0)
    throw UsageError(expectation("Step::run", "a batch with rows", "one without"));
  return *rows;
}

Tensors some_rows(const Tensors& batch, const optim::Rows& rows) {
  Tensors some;
  for (const Tensor& one : batch)
    some.push_back(one.defined() ? one.narrow(0, rows.first, rows.count) : one);
  return some;
}

std::vector<optim::Rows> parts_of(std::int64_t rows, const Plan& plan) {
  const std::int64_t count = count_of_parts(plan, rows);
  std::vector<optim::Rows> all;
  for (std::int64_t i = 0, first = 0; i < count; ++i) {
    const std::int64_t size = rows / count + (i < rows % count ? 1 : 0);
    all.push_back({first, size});
    first += size;
  }
  return all;
}

Tensors put_on(const Tensors& rows, c10::Device device) {
  Tensors there;
  for (const Tensor& one : rows) {
    const bool can_wait = one.defined() && one.device().is_cpu() && one.is_pinned();
    there.push_back(one.defined() ? one.to(device, /*non_blocking=*/can_wait) : one);
  }
  return there;
}

Transaction::Transaction(torch::nn::Module& module, optim::Optimizer& optimizer,
                         Objective objective, const StepOptions& options)
    : module_(module),
      modules_{&module},
      optimizer_(optimizer),
      objective_(std::move(objective)),
      options_(options),
      home_(c10::DeviceType::CPU),
      device_(home_) {
  modules_.insert(modules_.end(), objective_.also.begin(), objective_.also.end());
  if (std::find(modules_.begin(), modules_.end(), nullptr) != modules_.end())
    throw UsageError(expectation("Step", "modules in Objective::also", "a null pointer"));
  if (!objective_.loss) throw UsageError(expectation("Step", "an objective with a loss", "none"));
  check(options, optimizer);
  check(options.plan, objective_);
  lasting_ = keeping_what_lasts({}, options.plan);
  check_trained(optimizer, module.parameters());
  if (options.scaling) scaler_.emplace(*options.scaling);
  home_ = device_ = optimizer.parameters().front().device();
  check_place();
  optimizer.protect(!optimizer.can_commit());
  for (std::size_t group = 0; group < optimizer.groups(); ++group)
    rates_.push_back(optimizer.learning_rate(group));
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

void Transaction::start_anew_on(c10::Device card) {
  is_dry_ = true;
  kept_.reset();
  offload_.reset();
  followed_.reset();
  home_ = device_ = card;
  writes_.forget();
  libtorch::move_shapes(modules_, card);
  for (std::size_t i = 0; i < optimizer_.parameters().size(); ++i) optimizer_.set_state(i, {});
  if (options_.scaling) scaler_.emplace(*options_.scaling);
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
  if (plan.has(kOffload))
    offload_.emplace(all_of(modules_),
                     nn::OffloadOptions{.budget = is_dry_ ? std::nullopt : host_memory_to_use(),
                                        .pinned = device_.is_cuda(),
                                        .copies = !is_dry_});
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

void Transaction::prepare() {
  if (kept_) return;
  optimizer_.reserve();
  if (scaler_) scaler_->reserve(optimizer_);
  const auto number = at::TensorOptions(device_).dtype(at::kDouble);
  kept_.reset(new Kept{Buffers(modules_), at::zeros({}, number), at::zeros({}, number)});
}

// A result of an earlier step may still have its numbers; otherwise their memory serves again.
void Transaction::begin_numbers() {
  for (Tensor* number : {&kept_->loss, &kept_->norm})
    if (number->use_count() > 1) *number = at::empty_like(*number);
  kept_->loss.zero_();
}

Tensor Transaction::loss_of(const Tensors& rows) {
  if (!offload_) return objective_.loss(rows);
  const auto scope = offload_->scope();
  return objective_.loss(rows);
}

void Transaction::clip() {
  const bool refuses = options_.refuse_non_finite && !is_dry_;
  if (refuses) check_finite(kept_->loss, "loss");
  if (options_.max_grad_norm > 0)
    kept_->norm.copy_(optim::clip_gradients(optimizer_.parameters(), options_.max_grad_norm));
  else if (needs_norm())
    kept_->norm.copy_(optim::gradient_norm(optimizer_.parameters()));
  if (refuses && !scaler_) check_finite(kept_->norm, "norm of the gradients");
}

void Transaction::forward_and_backward(const Tensors& rows, std::int64_t in_all) {
  Tensor share;
  {
    Tensors here;
    {
      const PhaseNow data = phase(trace::Phase::data);
      here = put_on(rows, device_);
    }
    const PhaseNow forward = phase(trace::Phase::forward);
    std::optional<libtorch::AutocastScope> autocast;
    if (options_.autocast) autocast.emplace(device_.type(), *options_.autocast);
    const Tensor loss = loss_of(here);
    check_loss(loss);
    share = optim::share_of_batch(loss, terms(rows), in_all);
  }
  const PhaseNow backward = phase(trace::Phase::backward);
  kept_->loss.add_(share.detach());
  (scaler_ ? scaler_->scale(share) : share).backward();
}

void Transaction::run_parts(const Tensors& batch, const Plan& plan, libtorch::RandomState& random) {
  const std::vector<optim::Rows> all = parts_of(rows_in(batch), plan);
  const std::int64_t in_all = std::max<std::int64_t>(terms(batch), 1);
  kept_->buffers.begin(static_cast<std::int64_t>(all.size()));
  begin_numbers();
  kept_->buffers.for_each([&](const Tensor& buffer) { writes_.leave_out(buffer); });
  writes_.leave_out(kept_->loss);
  writes_.begin(batch, random);
  const Writes::Watch watch(writes_);
  std::optional<libtorch::CallScope> pooled;
  if (all.size() > 1) pooled.emplace(kept_->buffers, libtorch::CallScope::Of::writing);
  for (const optim::Rows& part : all) forward_and_backward(some_rows(batch, part), in_all);
}

// Everything before update() can be dropped or put back.
void Transaction::attempt(const Tensors& batch, const Plan& plan, libtorch::RandomState& random) {
  {
    const PhaseNow begun = phase(trace::Phase::init);
    follow(plan);
    prepare();
  }
  optimizer_.zero_grad();
  run_parts(batch, plan, random);
  const PhaseNow optimizer = phase(trace::Phase::optimizer);
  if (scaler_) scaler_->unscale(optimizer_);
  clip();
  kept_->buffers.finish();
  update();
  writes_.commit();
  ++commits_;
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

void Transaction::undo(const libtorch::RandomState& random) {
  libtorch::settle(libtorch::devices_in_use());
  optimizer_.zero_grad();
  if (scaler_) scaler_->abandon();
  if (kept_) kept_->buffers.restore();
  writes_.undo();
  random.restore();
}

std::exception_ptr Transaction::try_once(const Tensors& batch, const Plan& plan) {
  libtorch::RandomState random(libtorch::devices_in_use());
  std::exception_ptr failure;
  try {
    attempt(batch, plan, random);
  } catch (...) {
    failure = std::current_exception();
  }
  // Outside of the handler: its exception holds nothing of the attempt.
  if (failure)
    undo(random);
  else
    optimizer_.zero_grad();
  return failure;
}

}  // namespace headroom::train::detail
