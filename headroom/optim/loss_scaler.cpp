#include "headroom/optim/loss_scaler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "headroom/base/error.h"

namespace headroom::optim {
namespace {

using at::Tensor;

at::TensorOptions float_on(c10::Device device) {
  return at::TensorOptions(device).dtype(at::kFloat);
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
  if (!(options.growth > 1))
    throw UsageError(
        expectation("LossScaler", "a growth above 1", std::to_string(options.growth), "2"));
  if (!(options.backoff < 1))
    throw UsageError(
        expectation("LossScaler", "a backoff below 1", std::to_string(options.backoff), "0.5"));
}

Tensor LossScaler::scale(const Tensor& loss) {
  if (!factor_.defined()) {
    const Tensor factor = at::full({}, options_.first, float_on(loss.device()));
    good_steps_ = at::full({}, first_good_steps_, float_on(loss.device()).dtype(at::kInt));
    factor_ = factor;
  }
  return loss * factor_.to(at::TensorOptions(loss.device()), true);
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

void LossScaler::step(Optimizer& optimizer) {
  check_ready("step");
  Progress& progress = progress_[&optimizer];
  if (progress.stage == Stage::stepped)
    throw UsageError(
        expectation("LossScaler::step", "one step, then update()", "a second step", "update()"));
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
  options_.first = factor;
  first_good_steps_ = good_steps;
  if (factor_.defined()) factor_.fill_(factor);
  if (good_steps_.defined()) good_steps_.fill_(good_steps);
}

}  // namespace headroom::optim
