// torch/optim/_adafactor.py
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/optim/detail/adafactor_in_place.h"
#include "headroom/optim/detail/check.h"
#include "headroom/optim/detail/grouped.h"
#include "headroom/optim/detail/groups.h"
#include "headroom/optim/detail/multiply.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

using at::Tensor;
using detail::Indices;
using detail::Tensors;

double smallest_difference(at::ScalarType type) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "smallest_difference", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::epsilon());
  });
}

double root_mean_square(const Tensor& x) {
  return at::linalg_vector_norm(x, 2).item<double>() /
         std::pow(static_cast<double>(x.numel()), 0.5);
}

// length_of(x)^2 / count is (x * x).mean(dim), without a temporary as large as x.
Tensor length_of(const Tensor& x, std::int64_t dim) {
  return at::linalg_vector_norm(x, 2, at::IntArrayRef(dim), true);
}

struct Lists {
  Tensors parameters, gradients, rows, columns, variances, steps;
};

Lists select(const Lists& all, const Indices& group) {
  return {detail::select(all.parameters, group), detail::select(all.gradients, group),
          detail::select(all.rows, group),       detail::select(all.columns, group),
          detail::select(all.variances, group),  detail::select(all.steps, group)};
}

// Separates matrices from vectors, in order of first appearance.
std::vector<Indices> by_device_type_and_shape(const Tensors& parameters, const Tensors& gradients) {
  std::vector<Indices> groups;
  for (const Indices& group : detail::by_device_and_type(parameters)) {
    Indices same, other;
    const bool first_is_matrix = gradients[group[0]].dim() > 1;
    for (const std::size_t i : group)
      ((gradients[i].dim() > 1) == first_is_matrix ? same : other).push_back(i);
    groups.push_back(std::move(same));
    if (!other.empty()) groups.push_back(std::move(other));
  }
  return groups;
}

class Adafactor : public detail::Grouped<AdafactorOptions> {
 public:
  explicit Adafactor(const std::vector<Group<AdafactorOptions>>& groups)
      : Grouped(groups, detail::form_of("Adafactor", groups)) {}

  [[nodiscard]] bool can_commit() const override { return true; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  void reserve_scratch(const std::vector<Tensor>& parameters) override {
    scratch_ = detail::AdafactorInPlace(parameters);
  }
  void update_in_place(std::size_t group, Trained& trained, const GradientScale& scale) override;

  detail::AdafactorInPlace scratch_;
};

// Python determines this once, from the first parameter's type, and keeps it for the others.
double epsilon_of(const AdafactorOptions& options, const Tensor& first) {
  return options.epsilon1.value_or(smallest_difference(first.scalar_type()));
}

// The forms, with the options of one group.
struct AdafactorSteps {
  AdafactorOptions options;

  void loop(const Lists& all) const;
  void foreach (const Lists& all) const;

  [[nodiscard]] std::vector<double> count_step(const Lists& group) const;
  [[nodiscard]] std::vector<at::Scalar> shares(const Lists& group) const;
  void mix_in(const Tensors& kept, const Lists& group, std::int64_t dim) const;
  [[nodiscard]] Tensors of_matrices(const Lists& group, double epsilon) const;
  [[nodiscard]] Tensors of_vectors(const Lists& group) const;

  [[nodiscard]] double relative_size(const Tensor& parameter, const Tensor& step) const;
  [[nodiscard]] double damping(const Tensor& update) const {
    return std::max(1.0, root_mean_square(update) / options.clip);
  }
  [[nodiscard]] double decay_of_parameters() const {
    return 1 - options.learning_rate * options.weight_decay;
  }
  // The weight of new values in the running means: 1 in the first step, less in each later one.
  [[nodiscard]] double share_of_new(const Tensor& step) const {
    return std::pow(step.item<double>(), options.beta2_decay);
  }
};

void Adafactor::check(const Trained& trained) const {
  detail::check_dense("Adafactor", trained.gradients);
  detail::check_real("Adafactor", trained.parameters);
}

State Adafactor::make_state(std::size_t, const Tensor& parameter, const Tensor& of) const {
  const Tensor& gradient = of.defined() ? of : parameter;
  State state;
  const bool in_double = c10::get_default_dtype_as_scalartype() == at::kDouble;
  state["step"] = at::zeros({}, in_double ? at::kDouble : at::kFloat);
  if (gradient.dim() <= 1) {
    state["variance"] = at::zeros_like(gradient);
    return state;
  }
  std::vector<std::int64_t> row = gradient.sizes().vec(), column = row;
  row.back() = 1;
  column[column.size() - 2] = 1;
  state["row_var"] = gradient.new_zeros(row);
  state["col_var"] = gradient.new_zeros(column);
  return state;
}

double AdafactorSteps::relative_size(const Tensor& parameter, const Tensor& step) const {
  const double rate = std::min(options.learning_rate, 1 / std::pow(step.item<double>(), 0.5));
  return std::max(options.epsilon2, root_mean_square(parameter)) * rate;
}

void Adafactor::update(std::size_t group, Trained& trained, const GradientScale&) {
  if (trained.parameters.empty()) return;
  const Lists all{trained.parameters,       trained.gradients,         kept(trained, "row_var"),
                  kept(trained, "col_var"), kept(trained, "variance"), kept(trained, "step")};
  const AdafactorSteps steps{options(group)};
  if (form() == OptimizerForm::loop)
    steps.loop(all);
  else
    steps.foreach (all);
}

void Adafactor::update_in_place(std::size_t group, Trained& trained, const GradientScale&) {
  if (trained.parameters.empty()) return;
  const AdafactorOptions now = options(group);
  const double epsilon = epsilon_of(now, trained.parameters[0]);
  for (std::size_t i = 0; i < trained.parameters.size(); ++i)
    scratch_.update(trained.parameters[i], trained.gradients[i], *trained.states[i], now, epsilon);
}

void AdafactorSteps::loop(const Lists& all) const {
  const double epsilon = epsilon_of(options, all.parameters[0]);
  // Like Python's variables, alive until the next parameter's values replace them.
  Tensor variance, update, of_rows, of_columns, squared;
  for (std::size_t i = 0; i < all.parameters.size(); ++i) {
    const Tensor &parameter = all.parameters[i], &gradient = all.gradients[i];
    const Tensor& step = all.steps[i].add_(1);
    const double share = share_of_new(step);
    const double size = relative_size(parameter, step);
    if (options.weight_decay != 0) detail::multiply_(parameter, decay_of_parameters());
    if (gradient.dim() > 1) {
      of_rows = length_of(gradient, -1).square_().div_(gradient.size(-1));
      all.rows[i].lerp_(of_rows, share);
      of_columns = length_of(gradient, -2).square_().div_(gradient.size(-2));
      all.columns[i].lerp_(of_columns, share);
      variance = at::matmul(all.rows[i], all.columns[i]);
      variance.div_(all.rows[i].mean(-2, true).clamp_(epsilon));
    } else {
      squared = gradient * gradient;
      all.variances[i].lerp_(squared, share);
      variance = all.variances[i].clone();
    }
    update = variance.clamp_(epsilon * epsilon).rsqrt_();
    update.mul_(gradient);
    parameter.add_(update, -size / damping(update));
  }
}

void AdafactorSteps::foreach (const Lists& all) const {
  std::optional<double> epsilon;
  Tensors updates;  // a group's updates live until the next group's replace them
  for (const Indices& indices : by_device_type_and_shape(all.parameters, all.gradients)) {
    const Lists group = select(all, indices);
    if (!epsilon) epsilon = epsilon_of(options, group.parameters[0]);
    const std::vector<double> sizes = count_step(group);
    if (options.weight_decay != 0) at::_foreach_mul_(group.parameters, decay_of_parameters());
    const bool matrices = group.gradients[0].dim() > 1;
    Tensors variances = matrices ? of_matrices(group, *epsilon) : of_vectors(group);
    at::_foreach_clamp_min_(variances, *epsilon * *epsilon);
    at::_foreach_rsqrt_(variances);
    at::_foreach_mul_(variances, group.gradients);
    updates = std::move(variances);
    std::vector<at::Scalar> factors;
    for (std::size_t i = 0; i < updates.size(); ++i)
      factors.emplace_back(-sizes[i] / damping(updates[i]));
    at::_foreach_mul_(updates, factors);
    at::_foreach_add_(group.parameters, updates);
  }
}

// Counts the step, and returns the step size of each parameter of the group.
std::vector<double> AdafactorSteps::count_step(const Lists& group) const {
  at::_foreach_add_(group.steps, at::ones({}, at::kFloat), 1);
  std::vector<double> sizes;
  for (std::size_t i = 0; i < group.steps.size(); ++i)
    sizes.push_back(relative_size(group.parameters[i], group.steps[i]));
  return sizes;
}

std::vector<at::Scalar> AdafactorSteps::shares(const Lists& group) const {
  std::vector<at::Scalar> each;
  for (const Tensor& step : group.steps) each.emplace_back(share_of_new(step));
  return each;
}

// Mixes the mean squares of the rows or columns into `kept`.
void AdafactorSteps::mix_in(const Tensors& kept, const Lists& group, std::int64_t dim) const {
  Tensors squares;
  std::vector<at::Scalar> counts;
  for (const Tensor& gradient : group.gradients) {
    squares.push_back(length_of(gradient, dim));
    counts.emplace_back(gradient.size(dim));
  }
  at::_foreach_mul_(squares, squares);
  at::_foreach_div_(squares, counts);
  at::_foreach_lerp_(kept, squares, shares(group));
}

Tensors AdafactorSteps::of_matrices(const Lists& group, double epsilon) const {
  mix_in(group.rows, group, -1);
  mix_in(group.columns, group, -2);
  Tensors variances, means;
  for (std::size_t i = 0; i < group.rows.size(); ++i)
    variances.push_back(at::matmul(group.rows[i], group.columns[i]));
  for (const Tensor& row : group.rows) means.push_back(row.mean(-2, true));
  at::_foreach_clamp_min_(means, epsilon);
  at::_foreach_div_(variances, means);
  return variances;
}

Tensors AdafactorSteps::of_vectors(const Lists& group) const {
  {
    const Tensors squared = at::_foreach_mul(group.gradients, group.gradients);
    at::_foreach_lerp_(group.variances, squared, shares(group));
  }
  Tensors copies;
  for (const Tensor& variance : group.variances) copies.push_back(variance.clone());
  return copies;
}

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(std::vector<Tensor> parameters,
                                          const AdafactorOptions& options) {
  return make_adafactor({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_adafactor(const std::vector<Group<AdafactorOptions>>& groups) {
  constexpr std::string_view kName = "Adafactor";
  for (const auto& [parameters, options] : groups) {
    if (options.form == OptimizerForm::fused)
      throw UsageError(expectation(kName, "the form loop or foreach", "fused", "loop"));
    detail::check_not_negative(kName, "a learning rate", options.learning_rate);
    detail::check_not_above_zero(kName, "a beta2_decay", options.beta2_decay);
    detail::check_not_negative(kName, "an epsilon1", options.epsilon1.value_or(0));
    detail::check_not_negative(kName, "an epsilon2", options.epsilon2);
    if (!(options.clip >= 1))
      throw UsageError(expectation(kName, "a clip of at least 1", std::to_string(options.clip)));
    detail::check_not_negative(kName, "a weight decay", options.weight_decay);
  }
  return std::make_unique<Adafactor>(groups);
}

}  // namespace headroom::optim
