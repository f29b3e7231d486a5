// torch/optim/rmsprop.py
#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/base/error.h"
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

constexpr std::string_view kName = "RMSprop";

struct RmsPropLists {
  Tensors parameters, gradients, squares, means, buffers, steps;
};

RmsPropLists select(const RmsPropLists& all, const Indices& group) {
  return {detail::select(all.parameters, group), detail::select(all.gradients, group),
          detail::select(all.squares, group),    detail::select(all.means, group),
          detail::select(all.buffers, group),    detail::select(all.steps, group)};
}

class RmsProp : public detail::Grouped<RmsPropOptions> {
 public:
  explicit RmsProp(const std::vector<Group<RmsPropOptions>>& groups)
      : Grouped(groups, detail::form_of(kName, groups)) {}

  [[nodiscard]] bool can_commit() const override { return true; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  void reserve_scratch(const Tensors& parameters) override;
  void update_in_place(std::size_t group, Trained& trained, const GradientScale& scale) override;

  [[nodiscard]] static RmsPropLists lists_of(const Trained& trained, const RmsPropOptions& options);
  [[nodiscard]] Tensor scratch_for(const Tensor& parameter) const;

  Tensors scratch_;  // flat, as large as the largest parameter of its device and type
};

// The forms, with the options of one group.
struct RmsPropSteps {
  RmsPropOptions options;

  void loop(const RmsPropLists& all) const;
  void foreach (const RmsPropLists& all) const;
  // Does for one parameter what loop() does for all, with `divisor` for its only temporary. Adds
  // the weight decay to the gradient itself.
  void in_place(const RmsPropLists& all, std::size_t i, Tensor divisor) const;

  void mix_in(const RmsPropLists& all, std::size_t i, const Tensor& gradient) const;
  void move(const RmsPropLists& all, std::size_t i, const Tensor& gradient,
            const Tensor& divisor) const;
};

void RmsProp::check(const Trained& trained) const {
  detail::check_dense(kName, trained.gradients);
  detail::check_real(kName, trained.parameters);
}

State RmsProp::make_state(std::size_t group, const Tensor& parameter, const Tensor&) const {
  const RmsPropOptions now = options(group);
  const bool in_double = c10::get_default_dtype_as_scalartype() == at::kDouble;
  State state;
  state["step"] = at::zeros({}, in_double ? at::kDouble : at::kFloat);
  state["square_avg"] = at::zeros_like(parameter);
  if (now.momentum > 0) state["momentum_buffer"] = at::zeros_like(parameter);
  if (now.centered) state["grad_avg"] = at::zeros_like(parameter);
  return state;
}

RmsPropLists RmsProp::lists_of(const Trained& trained, const RmsPropOptions& options) {
  return {trained.parameters,
          trained.gradients,
          kept(trained, "square_avg"),
          options.centered ? kept(trained, "grad_avg") : Tensors(),
          options.momentum > 0 ? kept(trained, "momentum_buffer") : Tensors(),
          kept(trained, "step")};
}

void RmsProp::update(std::size_t group, Trained& trained, const GradientScale&) {
  if (trained.parameters.empty()) return;
  const RmsPropSteps steps{options(group)};
  const RmsPropLists all = lists_of(trained, steps.options);
  if (form() == OptimizerForm::loop)
    steps.loop(all);
  else
    steps.foreach (all);
}

bool is_alike(const Tensor& a, const Tensor& b) {
  return a.device() == b.device() && a.scalar_type() == b.scalar_type();
}

void RmsProp::reserve_scratch(const Tensors& parameters) {
  Tensors largest;
  for (const Tensor& parameter : parameters) {
    const auto found = std::find_if(largest.begin(), largest.end(),
                                    [&](const Tensor& one) { return is_alike(one, parameter); });
    if (found == largest.end())
      largest.push_back(parameter);
    else if (parameter.numel() > found->numel())
      *found = parameter;
  }
  Tensors scratch;
  for (const Tensor& one : largest)
    scratch.push_back(at::empty({one.numel()}, at::TensorOptions(one.device()).dtype(one.dtype())));
  scratch_ = std::move(scratch);
}

Tensor RmsProp::scratch_for(const Tensor& parameter) const {
  for (const Tensor& one : scratch_)
    if (is_alike(one, parameter) && one.numel() >= parameter.numel())
      return one.narrow(0, 0, parameter.numel()).view(parameter.sizes());
  throw InternalError(expectation(kName, "memory reserved for a parameter", "none"));
}

void RmsProp::update_in_place(std::size_t group, Trained& trained, const GradientScale&) {
  const RmsPropSteps steps{options(group)};
  const RmsPropLists all = lists_of(trained, steps.options);
  for (std::size_t i = 0; i < all.parameters.size(); ++i)
    steps.in_place(all, i, scratch_for(all.parameters[i]));
}

void RmsPropSteps::mix_in(const RmsPropLists& all, std::size_t i, const Tensor& gradient) const {
  detail::multiply_(all.squares[i], options.alpha).addcmul_(gradient, gradient, 1 - options.alpha);
  if (options.centered) all.means[i].lerp_(gradient, 1 - options.alpha);
}

void RmsPropSteps::move(const RmsPropLists& all, std::size_t i, const Tensor& gradient,
                        const Tensor& divisor) const {
  if (options.momentum > 0) {
    detail::multiply_(all.buffers[i], options.momentum).addcdiv_(gradient, divisor);
    all.parameters[i].add_(all.buffers[i], -options.learning_rate);
  } else {
    all.parameters[i].addcdiv_(gradient, divisor, -options.learning_rate);
  }
}

void RmsPropSteps::loop(const RmsPropLists& all) const {
  Tensor gradient, divisor;  // Python's variables: alive until the next parameter's replace them
  for (std::size_t i = 0; i < all.parameters.size(); ++i) {
    gradient = all.gradients[i];
    all.steps[i].add_(1);
    if (options.weight_decay != 0) gradient = gradient.add(all.parameters[i], options.weight_decay);
    mix_in(all, i, gradient);
    divisor = options.centered ? all.squares[i].addcmul(all.means[i], all.means[i], -1).sqrt_()
                               : all.squares[i].sqrt();
    divisor.add_(options.epsilon);
    move(all, i, gradient, divisor);
  }
}

void RmsPropSteps::in_place(const RmsPropLists& all, std::size_t i, Tensor divisor) const {
  const Tensor& gradient = all.gradients[i];
  all.steps[i].add_(1);
  if (options.weight_decay != 0) gradient.add_(all.parameters[i], options.weight_decay);
  mix_in(all, i, gradient);
  divisor.copy_(all.squares[i]);
  if (options.centered) divisor.addcmul_(all.means[i], all.means[i], -1);
  divisor.sqrt_().add_(options.epsilon);
  move(all, i, gradient, divisor);
}

void RmsPropSteps::foreach (const RmsPropLists& every) const {
  Tensors gradients,
      divisors;  // Python's variables: a group's live until the next group's replace them
  for (const Indices& indices : detail::by_device_and_type(every.parameters)) {
    const RmsPropLists all = select(every, indices);
    gradients = all.gradients;
    at::_foreach_add_(all.steps, at::ones({}, at::kFloat), 1);
    if (options.weight_decay != 0)
      gradients = at::_foreach_add(gradients, all.parameters, options.weight_decay);
    at::_foreach_mul_(all.squares, options.alpha);
    at::_foreach_addcmul_(all.squares, gradients, gradients, 1 - options.alpha);
    if (options.centered) {
      at::_foreach_lerp_(all.means, gradients, 1 - options.alpha);
      divisors = at::_foreach_addcmul(all.squares, all.means, all.means, -1);
      at::_foreach_sqrt_(divisors);
    } else {
      divisors = at::_foreach_sqrt(all.squares);
    }
    at::_foreach_add_(divisors, options.epsilon);
    if (options.momentum > 0) {
      at::_foreach_mul_(all.buffers, options.momentum);
      at::_foreach_addcdiv_(all.buffers, gradients, divisors, 1);
      at::_foreach_add_(all.parameters, all.buffers, -options.learning_rate);
    } else {
      at::_foreach_addcdiv_(all.parameters, gradients, divisors, -options.learning_rate);
    }
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(std::vector<Tensor> parameters,
                                        const RmsPropOptions& options) {
  return make_rmsprop({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_rmsprop(const std::vector<Group<RmsPropOptions>>& groups) {
  for (const auto& [parameters, options] : groups) {
    if (options.form == OptimizerForm::fused)
      throw UsageError(expectation(kName, "the form loop or foreach", "fused", "foreach"));
    detail::check_not_negative(kName, "a learning rate", options.learning_rate);
    detail::check_not_negative(kName, "an alpha", options.alpha);
    detail::check_not_negative(kName, "an epsilon", options.epsilon);
    detail::check_not_negative(kName, "a weight decay", options.weight_decay);
    detail::check_not_negative(kName, "a momentum", options.momentum);
  }
  return std::make_unique<RmsProp>(groups);
}

}  // namespace headroom::optim
