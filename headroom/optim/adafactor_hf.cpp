// transformers/optimization.py of 4.57.6
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/optim/detail/check.h"
#include "headroom/optim/detail/grouped.h"
#include "headroom/optim/detail/multiply.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

using at::Tensor;

bool has_less_precision(const Tensor& x) {
  return at::isReducedFloatingType(x.scalar_type());
}

Tensor rms(const Tensor& x) {
  return at::linalg_vector_norm(x, 2) / std::pow(static_cast<double>(x.numel()), 0.5);
}

// Approximates 1 / sqrt(mean squares) from their row and column means.
Tensor from_factors(const Tensor& row, const Tensor& column) {
  const Tensor of_rows = (row / row.mean(-1, true)).rsqrt_().unsqueeze(-1);
  const Tensor of_columns = column.unsqueeze(-2).rsqrt();
  return at::mul(of_rows, of_columns);
}

class AdafactorHf : public detail::Grouped<AdafactorHfOptions> {
 public:
  explicit AdafactorHf(const std::vector<Group<AdafactorHfOptions>>& groups)
      : Grouped(groups, OptimizerForm::loop) {}

 private:
  // The variables of Python's loop: each value lives until the next parameter's replaces it.
  struct Variables {
    Tensor gradient, parameter;  // in float
    Tensor update;
    Tensor rate;  // a scalar; on the host unless it depends on values of the card
  };

  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  static void update_one(Variables& now, const Tensor& parameter, State& state,
                         const AdafactorHfOptions& options);
  [[nodiscard]] static Tensor rate(const State& state, double step,
                                   const AdafactorHfOptions& options);
  [[nodiscard]] static Tensor factored(const Tensor& squares, const State& state, double keep);
  static void apply(Variables& now, State& state, const AdafactorHfOptions& options);
};

void AdafactorHf::check(const Trained& trained) const {
  detail::check_dense("Adafactor", trained.gradients);
  detail::check_real("Adafactor", trained.parameters);
}

void AdafactorHf::update(std::size_t group, Trained& trained, const GradientScale&) {
  const AdafactorHfOptions of_group = options(group);
  Variables now;
  for (std::size_t i = 0; i < trained.parameters.size(); ++i) {
    now.gradient = trained.gradients[i];
    if (has_less_precision(now.gradient)) now.gradient = now.gradient.to(at::kFloat);
    update_one(now, trained.parameters[i], *trained.states[i], of_group);
  }
}

// In float where the gradient has less precision. As in Python, the factors are created on the host
// and then copied to the device.
State AdafactorHf::make_state(std::size_t group, const Tensor& parameter, const Tensor& of) const {
  const Tensor& gradient = of.defined() ? of : parameter;
  const at::TensorOptions type =
      gradient.options().dtype(has_less_precision(gradient) ? at::kFloat : gradient.scalar_type());
  const std::vector<std::int64_t> sizes = gradient.sizes().vec();
  State state;
  state["step"] = at::zeros({}, at::kFloat);
  state["RMS"] = at::zeros({}, type.device(at::kCPU));  // each update makes it anew on the device
  if (options(group).beta1) state["exp_avg"] = at::zeros_like(gradient, type);
  if (sizes.size() < 2) {
    state["exp_avg_sq"] = at::zeros_like(gradient, type);
    return state;
  }
  std::vector<std::int64_t> row(sizes.begin(), sizes.end() - 1), column = row;
  column.back() = sizes.back();
  state["exp_avg_sq_row"] = at::zeros(row).to(type);
  state["exp_avg_sq_col"] = at::zeros(column).to(type);
  return state;
}

void AdafactorHf::update_one(Variables& now, const Tensor& parameter, State& state,
                             const AdafactorHfOptions& options) {
  for (auto& [name, tensor] : state)
    if (name.starts_with("exp_avg")) tensor = tensor.to(now.gradient);
  now.parameter = parameter;
  if (has_less_precision(parameter)) now.parameter = now.parameter.to(at::kFloat);
  const double step = state["step"].add_(1).item<double>();
  state["RMS"] = rms(now.parameter);
  now.rate = rate(state, step, options);
  const double keep = 1 - std::pow(step, options.decay_rate);  // weight of the old means
  now.update = now.gradient.pow(2) + options.epsilon1;
  if (now.gradient.dim() >= 2) {
    now.update = factored(now.update, state, keep);
    now.update.mul_(now.gradient);
  } else {
    Tensor& squares = state["exp_avg_sq"];
    detail::multiply_(squares, keep).add_(now.update, 1 - keep);
    now.update = squares.rsqrt().mul_(now.gradient);
  }
  apply(now, state, options);
  if (has_less_precision(parameter)) parameter.copy_(now.parameter);
}

Tensor AdafactorHf::factored(const Tensor& squares, const State& state, double keep) {
  const Tensor &row = state.at("exp_avg_sq_row"), &column = state.at("exp_avg_sq_col");
  detail::multiply_(row, keep).add_(squares.mean(-1), 1 - keep);
  detail::multiply_(column, keep).add_(squares.mean(-2), 1 - keep);
  return from_factors(row, column);
}

Tensor AdafactorHf::rate(const State& state, double step, const AdafactorHfOptions& options) {
  double relative = options.learning_rate.value_or(0);
  if (options.relative_step)
    relative = std::min(options.warmup_init ? 1e-6 * step : 1e-2, 1 / std::sqrt(step));
  if (!options.scale_parameter) return at::scalar_tensor(relative, at::kDouble);
  const Tensor& size = state.at("RMS");
  if ((size > options.epsilon2).item<bool>()) return size * relative;
  return at::scalar_tensor(options.epsilon2 * relative, at::kDouble);
}

void AdafactorHf::apply(Variables& now, State& state, const AdafactorHfOptions& options) {
  now.update.div_((rms(now.update) / options.clip_threshold).clamp_(1.0));
  now.update.mul_(now.rate);
  if (options.beta1) {
    const Tensor& mean = state.at("exp_avg");
    detail::multiply_(mean, *options.beta1).add_(now.update, 1 - *options.beta1);
    now.update = mean;
  }
  if (options.weight_decay != 0)
    now.parameter.add_(now.parameter, -options.weight_decay * now.rate.item<double>());
  now.parameter.add_(-now.update);
}

}  // namespace

std::unique_ptr<Optimizer> make_adafactor_hf(std::vector<Tensor> parameters,
                                             const AdafactorHfOptions& options) {
  return make_adafactor_hf({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_adafactor_hf(const std::vector<Group<AdafactorHfOptions>>& groups) {
  constexpr std::string_view kName = "Adafactor";
  for (const auto& [parameters, options] : groups) {
    if (options.learning_rate && options.relative_step)
      throw UsageError(
          expectation(kName, "a learning rate or relative_step", "both", "relative_step = false"));
    if (!options.learning_rate && !options.relative_step)
      throw UsageError(expectation(kName, "a learning rate without relative_step", "none"));
    if (options.warmup_init && !options.relative_step)
      throw UsageError(expectation(kName, "relative_step with warmup_init", "none"));
  }
  return std::make_unique<AdafactorHf>(groups);
}

}  // namespace headroom::optim
