// torch/optim/adam.py, which AdamW uses too
#include <ATen/ATen.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/optim/detail/check.h"
#include "headroom/optim/detail/grouped.h"
#include "headroom/optim/detail/groups.h"
#include "headroom/optim/detail/kernel_lists.h"
#include "headroom/optim/detail/multiply.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

using at::Tensor;
using detail::Indices;
using detail::Tensors;

enum class Decay { in_the_gradient, of_the_parameter };

// The optimizer's name for messages.
std::string_view name_of(Decay decay) {
  return decay == Decay::in_the_gradient ? "Adam" : "AdamW";
}

struct AdamSettings : AdamOptions {
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;
};

struct AdamLists {
  Tensors parameters, gradients, means, squares, largest_squares, steps;
};

AdamLists select(const AdamLists& all, const Indices& group) {
  return {detail::select(all.parameters, group),      detail::select(all.gradients, group),
          detail::select(all.means, group),           detail::select(all.squares, group),
          detail::select(all.largest_squares, group), detail::select(all.steps, group)};
}

class Adam : public detail::Grouped<AdamSettings> {
 public:
  Adam(const std::vector<Group<AdamSettings>>& groups, Decay decay)
      : Grouped(groups, detail::form_of(name_of(decay), groups)), decay_(decay) {}

  [[nodiscard]] bool takes_scale() const override { return form() == OptimizerForm::fused; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  void fused(const AdamLists& all, const Indices& numbers, const AdamSettings& settings,
             const GradientScale& scale) const;
  static void rounded(const AdamLists& group, const Indices& numbers, const AdamSettings& settings,
                      const GradientScale& scale);

  Decay decay_;
};

// The forms loop and foreach, with the options of one group.
struct AdamSteps {
  AdamOptions options;
  Decay decay;

  void loop(const AdamLists& all) const;
  void foreach (const AdamLists& all) const;
  void update_means(const AdamLists& group) const;
  [[nodiscard]] double step_size(const Tensor& step) const {
    return options.learning_rate / (1 - std::pow(options.beta1, step.item<double>()));
  }
  [[nodiscard]] double root_of_correction(const Tensor& step) const {
    return std::pow(1 - std::pow(options.beta2, step.item<double>()), 0.5);
  }
};

void Adam::check(const Trained& trained) const {
  detail::check_dense(name_of(decay_), trained.gradients);
  detail::check_real(name_of(decay_), trained.parameters);
}

void Adam::update(std::size_t group, Trained& trained, const GradientScale& scale) {
  const AdamSettings settings = options(group);
  const AdamSteps steps{settings, decay_};
  const AdamLists all{trained.parameters,
                      trained.gradients,
                      kept(trained, "exp_avg"),
                      kept(trained, "exp_avg_sq"),
                      steps.options.amsgrad ? kept(trained, "max_exp_avg_sq") : Tensors(),
                      kept(trained, "step")};
  switch (form()) {
    case OptimizerForm::loop:
      return steps.loop(all);
    case OptimizerForm::foreach:
      return steps.foreach (all);
    case OptimizerForm::fused:
      return fused(all, trained.indices, settings, scale);
  }
}

// Step counts are float even for a model in half precision. They are double if that is the default
// type, except in the fused form.
State Adam::make_state(std::size_t group, const Tensor& parameter, const Tensor&) const {
  State state;
  const bool in_double =
      form() != OptimizerForm::fused && c10::get_default_dtype_as_scalartype() == at::kDouble;
  state["step"] = at::zeros(
      {}, at::TensorOptions(place_of_steps(parameter)).dtype(in_double ? at::kDouble : at::kFloat));
  state["exp_avg"] = at::zeros_like(parameter);
  state["exp_avg_sq"] = at::zeros_like(parameter);
  if (options(group).amsgrad) state["max_exp_avg_sq"] = at::zeros_like(parameter);
  return state;
}

void AdamSteps::loop(const AdamLists& all) const {
  Tensor gradient, divisor;  // Python's variables: alive until the next parameter's replace them
  for (std::size_t i = 0; i < all.parameters.size(); ++i) {
    const Tensor& parameter = all.parameters[i];
    gradient = all.gradients[i];
    all.steps[i].add_(1);
    if (options.weight_decay != 0 && decay == Decay::of_the_parameter)
      detail::multiply_(parameter, 1 - options.learning_rate * options.weight_decay);
    else if (options.weight_decay != 0)
      gradient = gradient.add(parameter, options.weight_decay);
    all.means[i].lerp_(gradient, 1 - options.beta1);
    detail::multiply_(all.squares[i], options.beta2)
        .addcmul_(gradient, gradient, 1 - options.beta2);
    if (options.amsgrad) {
      Tensor largest = all.largest_squares[i];
      at::maximum_out(largest, largest, all.squares[i]);
    }
    const Tensor& squares = options.amsgrad ? all.largest_squares[i] : all.squares[i];
    divisor = (squares.sqrt() / root_of_correction(all.steps[i])).add_(options.epsilon);
    parameter.addcdiv_(all.means[i], divisor, -step_size(all.steps[i]));
  }
}

// The decayed copies of the gradients are freed on return.
void AdamSteps::update_means(const AdamLists& group) const {
  Tensors gradients = group.gradients;
  if (options.weight_decay != 0 && decay == Decay::of_the_parameter)
    at::_foreach_mul_(group.parameters, 1 - options.learning_rate * options.weight_decay);
  else if (options.weight_decay != 0)
    gradients = at::_foreach_add(gradients, group.parameters, options.weight_decay);
  at::_foreach_lerp_(group.means, gradients, 1 - options.beta1);
  at::_foreach_mul_(group.squares, options.beta2);
  at::_foreach_addcmul_(group.squares, gradients, gradients, 1 - options.beta2);
}

void AdamSteps::foreach (const AdamLists& all) const {
  Tensors divisors;  // Python's variable: a group's live until the next group's replace them
  for (const Indices& indices : detail::by_device_and_type(all.parameters)) {
    const AdamLists group = select(all, indices);
    if (group.steps[0].is_cpu())
      at::_foreach_add_(group.steps, at::ones({}, at::kFloat), 1);
    else
      at::_foreach_add_(group.steps, 1);
    update_means(group);
    std::vector<at::Scalar> sizes, roots;
    for (const Tensor& step : group.steps) {
      sizes.emplace_back(-step_size(step));
      roots.emplace_back(root_of_correction(step));
    }
    if (options.amsgrad) at::_foreach_maximum_(group.largest_squares, group.squares);
    divisors = at::_foreach_sqrt(options.amsgrad ? group.largest_squares : group.squares);
    at::_foreach_div_(divisors, roots);
    at::_foreach_add_(divisors, options.epsilon);
    at::_foreach_addcdiv_(group.parameters, group.means, divisors, sizes);
  }
}

// With stochastic rounding. `group` has one device.
void Adam::rounded(const AdamLists& group, const Indices& numbers, const AdamSettings& settings,
                   const GradientScale& scale) {
  Indices each;
  for (std::size_t i = 0; i < numbers.size(); ++i) each.push_back(i);
  kernels::adamw_(
      detail::kernel_lists(group.parameters, group.gradients, each, numbers, group.steps, scale),
      group.means, group.squares,
      {settings.learning_rate, settings.beta1, settings.beta2, settings.weight_decay,
       settings.epsilon},
      detail::rounding_of(settings.rounding, settings.seed));
}

void Adam::fused(const AdamLists& all, const Indices& numbers, const AdamSettings& options,
                 const GradientScale& scale) const {
  for (const Indices& indices : detail::by_device_and_type(all.parameters)) {
    const AdamLists group = select(all, indices);
    const c10::Device device = group.parameters[0].device();
    const GradientScale scale_here = here(device, scale);
    const auto factor = detail::if_defined(scale_here.scale);
    const auto not_finite = detail::if_defined(scale_here.not_finite);
    at::_foreach_add_(group.steps, 1);
    const auto step = [&](auto kernel) {
      kernel(group.parameters, group.gradients, group.means, group.squares, group.largest_squares,
             group.steps, options.learning_rate, options.beta1, options.beta2, options.weight_decay,
             options.epsilon, options.amsgrad, false, factor, not_finite);
    };
    if (options.rounding == Rounding::stochastic && detail::has_16_bits(group.parameters[0]))
      rounded(group, detail::select(numbers, indices), options, scale_here);
    else if (decay_ == Decay::of_the_parameter)
      step([](const auto&... of) { at::_fused_adamw_(of...); });
    else
      step([](const auto&... of) { at::_fused_adam_(of...); });
    detail::take_back(group.steps, scale_here);
  }
}

void check_rounding(const AdamSettings& settings) {
  if (settings.rounding == Rounding::nearest) return;
  detail::check_can_round("AdamW", settings.form);
  if (settings.amsgrad)
    throw UsageError(expectation("AdamW", "no amsgrad with stochastic rounding", "amsgrad = true"));
}

std::unique_ptr<Optimizer> make(const std::vector<Group<AdamSettings>>& groups, Decay decay) {
  const std::string_view name = name_of(decay);
  for (const auto& [parameters, options] : groups) {
    detail::check_not_negative(name, "a learning rate", options.learning_rate);
    detail::check_not_negative(name, "an epsilon", options.epsilon);
    detail::check_share(name, "a beta1", options.beta1);
    detail::check_share(name, "a beta2", options.beta2);
    detail::check_not_negative(name, "a weight decay", options.weight_decay);
    check_rounding(options);
  }
  return std::make_unique<Adam>(groups, decay);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam(std::vector<Tensor> parameters, const AdamOptions& options) {
  return make_adam({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_adam(const std::vector<Group<AdamOptions>>& groups) {
  std::vector<Group<AdamSettings>> same;
  for (const auto& [parameters, of] : groups) same.push_back({parameters, {of}});
  return make(same, Decay::in_the_gradient);
}

std::unique_ptr<Optimizer> make_adamw(std::vector<Tensor> parameters, const AdamWOptions& options) {
  return make_adamw({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_adamw(const std::vector<Group<AdamWOptions>>& groups) {
  std::vector<Group<AdamSettings>> same;
  for (const auto& [parameters, of] : groups)
    same.push_back(
        {parameters,
         {{of.learning_rate, of.beta1, of.beta2, of.epsilon, of.weight_decay, of.amsgrad, of.form},
          of.rounding,
          of.seed}});
  return make(same, Decay::of_the_parameter);
}

}  // namespace headroom::optim
