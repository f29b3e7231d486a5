#include "headroom/optim/loss_scaler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::optim {
namespace {

using at::Tensor;

at::TensorOptions float_on(c10::Device device) {
  return at::TensorOptions(device).dtype(at::kFloat);
}

void check_factor(const char* function, double factor) {
  if (!(factor > 0 && std::isfinite(factor)))
    throw UsageError(expectation(function, "a factor above 0", std::to_string(factor), "65536"));
}

// Makes one copy for each device that asks for one, in the order of the first requests.
class Copies {
 public:
  explicit Copies(Tensor original) : original_(std::move(original)) {}
  Tensor& on(c10::Device device) {
    for (Tensor& copy : copies_)
      if (copy.device() == device) return copy;
    return copies_.emplace_back(original_.to(at::TensorOptions(device), true, true));
  }
  [[nodiscard]] const std::vector<Tensor>& all() const { return copies_; }

 private:
  Tensor original_;
  std::vector<Tensor> copies_;
};

// Groups gradients by device and type, in order of first appearance.
std::vector<std::vector<Tensor>> grouped(const std::vector<Tensor>& parameters, bool half_too) {
  std::vector<std::vector<Tensor>> groups;
  for (const Tensor& parameter : parameters) {
    Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (!half_too && gradient.scalar_type() == at::kHalf)
      throw UsageError(expectation("LossScaler::unscale", "gradients of float32 weights",
                                   "gradients of float16", "weights in float32 and autocast"));
    if (gradient.is_sparse()) gradient = gradient._values();
    std::size_t at = 0;
    while (at < groups.size() && (groups[at][0].device() != gradient.device() ||
                                  groups[at][0].scalar_type() != gradient.scalar_type()))
      ++at;
    if (at == groups.size()) groups.emplace_back();
    groups[at].push_back(gradient);
  }
  return groups;
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  check_factor("LossScaler", options.first);
  if (options.growth_interval < 1)
    throw UsageError(expectation("LossScaler", "a growth interval of 1 step or more",
                                 std::to_string(options.growth_interval)));
  if (!(options.growth > 1))
    throw UsageError(
        expectation("LossScaler", "a growth above 1", std::to_string(options.growth), "2"));
  if (!(options.backoff > 0 && options.backoff < 1))
    throw UsageError(expectation("LossScaler", "a backoff above 0 and below 1",
                                 std::to_string(options.backoff), "0.5"));
}

void LossScaler::begin_on(c10::Device device) {
  if (factor_.defined()) return;
  const Tensor factor = at::full({}, options_.first, float_on(device));
  good_steps_ = at::full({}, first_good_steps_, float_on(device).dtype(at::kInt));
  factor_ = factor;
}

Tensor LossScaler::scale(const Tensor& loss) {
  begin_on(loss.device());
  return loss * factor_.to(at::TensorOptions(loss.device()), true);
}

void LossScaler::reserve(const Optimizer& optimizer, std::optional<c10::Device> device) {
  const at::NoGradGuard no_grad;
  Reserved reserved;
  const auto add = [&](c10::Device on) {
    for (const Reserved::Place& place : reserved.places)
      if (place.rounded.device() == on) return;
    begin_on(on);
    const at::TensorOptions number = float_on(on);
    reserved.places.push_back(
        {at::zeros({}, number.dtype(at::kDouble)), at::zeros({}, number), at::zeros({}, number)});
  };
  for (const Tensor& parameter : optimizer.parameters())
    if (parameter.requires_grad()) add(parameter.device());
  if (reserved.places.empty() && device) add(*device);
  if (reserved.places.empty()) return;
  reserved.found = at::zeros({}, float_on(factor_.device()));
  reserved.arrived = at::zeros({}, float_on(factor_.device()));
  reserved_[&optimizer] = std::move(reserved);
}

Tensor LossScaler::not_finite(const Optimizer& optimizer) const {
  return progress_.at(&optimizer).not_finite.at(0);
}

void LossScaler::commit(Optimizer& optimizer) {
  check_ready("commit");
  if (!optimizer.takes_scale() || !reserved_.contains(&optimizer))
    throw UsageError(
        expectation("LossScaler::commit", "a fused optimizer, after reserve(optimizer)",
                    optimizer.takes_scale() ? "one without reserve()" : "another form", "step()"));
  Progress& progress = progress_to_step("commit", optimizer);
  if (progress.stage == Stage::ready) unscale(optimizer);
  if (!progress.in_place)
    throw UsageError(expectation("LossScaler::commit", "reserve(optimizer) before unscale()",
                                 "reserve() after it", "abandon() and the step again"));
  optimizer.commit({{}, progress.not_finite[0]});
  progress.stage = Stage::stepped;
}

LossScaler::Progress& LossScaler::progress_to_step(const char* function,
                                                   const Optimizer& optimizer) {
  Progress& progress = progress_[&optimizer];
  if (progress.stage == Stage::stepped)
    throw UsageError(expectation(std::string("LossScaler::") + function, "one step, then update()",
                                 "a second step", "update()"));
  return progress;
}

void LossScaler::check_ready(const char* function) const {
  if (!factor_.defined())
    throw UsageError(expectation(std::string("LossScaler::") + function, "a scaled loss before",
                                 "none", "scale(loss).backward()"));
}

void LossScaler::unscale(Optimizer& optimizer) {
  check_ready("unscale");
  Progress& progress = progress_[&optimizer];
  if (progress.stage != Stage::ready)
    throw UsageError(expectation(
        "LossScaler::unscale", "to be called once a step, before step()",
        progress.stage == Stage::unscaled ? "a second call" : "a call after step()", "update()"));
  const at::NoGradGuard no_grad;  // same results; attributes the memory to the optimizer phase
  if (const auto found = reserved_.find(&optimizer); found != reserved_.end()) {
    progress.not_finite = {unscale_in_place(optimizer, found->second)};
    progress.in_place = true;
    progress.stage = Stage::unscaled;
    return;
  }
  const Tensor by = factor_.to(at::kDouble).reciprocal().to(at::kFloat);
  progress.not_finite = unscale(optimizer, by, false);
  progress.stage = Stage::unscaled;
}

std::vector<Tensor> LossScaler::unscale(const Optimizer& optimizer, const Tensor& by,
                                        bool half_too) const {
  const at::NoGradGuard no_grad;
  Copies factors(by);
  Copies found(at::full({}, 0.0, float_on(factor_.device())));
  const std::vector<std::vector<Tensor>> groups = grouped(optimizer.parameters(), half_too);
  // Allocate everything first: if memory ran out halfway, repeating the call would unscale some
  // gradients twice.
  for (const std::vector<Tensor>& gradients : groups) {
    static_cast<void>(found.on(gradients[0].device()));
    static_cast<void>(factors.on(gradients[0].device()));
  }
  for (const std::vector<Tensor>& gradients : groups) {
    const c10::Device device = gradients[0].device();
    Tensor& not_finite = found.on(device);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, not_finite, factors.on(device));
  }
  return found.all();
}

// Returns whether any gradient was infinite or NaN.
Tensor LossScaler::unscale_in_place(const Optimizer& optimizer, Reserved& reserved) const {
  const std::vector<std::vector<Tensor>> groups = grouped(optimizer.parameters(), false);
  std::vector<Reserved::Place*> places;  // of each group
  for (const std::vector<Tensor>& gradients : groups) {
    const auto place = std::find_if(reserved.places.begin(), reserved.places.end(),
                                    [&](const Reserved::Place& each) {
                                      return each.rounded.device() == gradients[0].device();
                                    });
    if (place == reserved.places.end())
      throw UsageError(expectation("LossScaler::unscale", "gradients on devices that are reserved",
                                   "one on " + gradients[0].device().str(),
                                   "reserve(optimizer) again"));
    places.push_back(&*place);
  }
  for (Reserved::Place& place : reserved.places) {
    place.rounded.copy_(factor_, /*non_blocking=*/true);
    place.rounded.copy_(place.exact.copy_(place.rounded).reciprocal_());
    place.not_finite.zero_();
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    at::_amp_foreach_non_finite_check_and_unscale_(groups[i], places[i]->not_finite,
                                                   places[i]->rounded);
  reserved.found.zero_();
  for (const Reserved::Place& place : reserved.places)
    reserved.found.add_(reserved.arrived.copy_(place.not_finite, /*non_blocking=*/true));
  return reserved.found;
}

void LossScaler::step(Optimizer& optimizer) {
  check_ready("step");
  Progress& progress = progress_to_step("step", optimizer);
  if (optimizer.takes_scale()) {
    step_fused(optimizer, progress);
  } else {
    if (progress.stage == Stage::ready) unscale(optimizer);
    double not_finite = 0;
    for (const Tensor& found : progress.not_finite) not_finite += found.item<double>();
    if (not_finite == 0) optimizer.step();
  }
  progress.stage = Stage::stepped;
}

// The fused kernels unscale and read `not_finite` on the device, so nothing waits for it.
void LossScaler::step_fused(Optimizer& optimizer, Progress& progress) {
  const at::NoGradGuard no_grad;
  const bool unscaled = progress.stage == Stage::unscaled;
  if (!unscaled)
    progress.not_finite = unscale(optimizer, at::full({}, 1.0, float_on(factor_.device())), true);
  Tensor found;
  for (const Tensor& one : progress.not_finite) {
    const Tensor here = one.to(at::TensorOptions(factor_.device()), true);
    found = found.defined() ? found + here : here + 0;
  }
  GradientScale scale{{}, found};
  if (!unscaled) scale.scale = factor_ * 1;
  optimizer.step(scale);
}

void LossScaler::update() {
  check_ready("update");
  const at::NoGradGuard no_grad;
  Tensor found;
  for (const auto& [optimizer, progress] : progress_)
    for (const Tensor& one : progress.not_finite) {
      const Tensor here = one.to(at::TensorOptions(factor_.device()), true);
      if (found.defined())
        found.add_(here);
      else
        found = here;
    }
  if (!found.defined())
    throw UsageError(expectation("LossScaler::update", "a step before", "none", "step(optimizer)"));
  at::_amp_update_scale_(factor_, good_steps_, found, options_.growth, options_.backoff,
                         options_.growth_interval);
  progress_.clear();
}

double LossScaler::factor() const {
  return factor_.defined() ? factor_.item<double>() : options_.first;
}

std::int64_t LossScaler::good_steps() const {
  return good_steps_.defined() ? good_steps_.item<std::int64_t>() : first_good_steps_;
}

void LossScaler::restore(double factor, std::int64_t good_steps) {
  check_factor("LossScaler::restore", factor);
  if (good_steps < 0)
    throw UsageError(
        expectation("LossScaler::restore", "0 good steps or more", std::to_string(good_steps)));
  options_.first = factor;
  first_good_steps_ = good_steps;
  if (factor_.defined()) factor_.fill_(factor);
  if (good_steps_.defined()) good_steps_.fill_(good_steps);
}

}  // namespace headroom::optim
