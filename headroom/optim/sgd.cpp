// torch/optim/sgd.py
#include <ATen/ATen.h>

#include <algorithm>

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

constexpr const char* kBuffer = "momentum_buffer";
constexpr const char* kStep = "step";  // with stochastic rounding only

class Sgd : public detail::Grouped<SgdOptions> {
 public:
  explicit Sgd(const std::vector<Group<SgdOptions>>& groups)
      : Grouped(groups, detail::form_of("SGD", groups)) {}

  [[nodiscard]] bool takes_scale() const override { return form() == OptimizerForm::fused; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(std::size_t group, const Tensor& parameter,
                                 const Tensor& gradient) const override;
  void update(std::size_t group, Trained& trained, const GradientScale& scale) override;
  static void loop(Trained& trained, const SgdOptions& options);
  static void foreach (Trained& trained, const SgdOptions& options);
  void fused(Trained& trained, const SgdOptions& options, const GradientScale& scale) const;
  static void fused(const Trained& trained, const Indices& of, SgdOptions options,
                    const GradientScale& scale);

  static void add_to_buffer(const Tensor& buffer, const Tensor& gradient,
                            const SgdOptions& options);
  static void update_buffer(const Trained& trained, std::size_t i, const Tensor& gradient,
                            const SgdOptions& options);
  [[nodiscard]] static Tensors update_buffers(const Trained& trained, const Indices& group,
                                              const Tensors& gradients, const SgdOptions& options);
};

void Sgd::check(const Trained& trained) const {
  if (form() == OptimizerForm::fused) detail::check_dense("SGD, fused", trained.gradients);
}

// The first buffer is the gradient (with weight decay), without dampening. The fused form makes it
// of zeros and adds the gradient in its kernel.
State Sgd::make_state(std::size_t group, const Tensor& parameter, const Tensor& gradient) const {
  const SgdOptions now = options(group);
  State state;
  if (now.rounding == Rounding::stochastic)
    state[kStep] = at::zeros({}, at::TensorOptions(parameter.device()).dtype(at::kFloat));
  if (now.momentum == 0) return state;
  if (form() == OptimizerForm::fused || !gradient.defined()) {
    state[kBuffer] = at::zeros_like(gradient.defined() ? gradient : parameter);
    return state;
  }
  if (now.weight_decay == 0) return {{kBuffer, gradient.detach().clone()}};
  return {{kBuffer, gradient.add(parameter, now.weight_decay)}};
}

void Sgd::update(std::size_t group, Trained& trained, const GradientScale& scale) {
  if (trained.parameters.empty()) return;
  switch (form()) {
    case OptimizerForm::loop:
      return loop(trained, options(group));
    case OptimizerForm::foreach:
      return foreach (trained, options(group));
    case OptimizerForm::fused:
      return fused(trained, options(group), scale);
  }
}

void Sgd::add_to_buffer(const Tensor& buffer, const Tensor& gradient, const SgdOptions& options) {
  detail::multiply_(buffer, options.momentum).add_(gradient, 1 - options.dampening);
}

// A buffer made now is the gradient already; one that was reserved becomes it.
void Sgd::update_buffer(const Trained& trained, std::size_t i, const Tensor& gradient,
                        const SgdOptions& options) {
  const Tensor& buffer = trained.states[i]->at(kBuffer);
  if (!trained.is_new[i])
    add_to_buffer(buffer, gradient, options);
  else if (!trained.made_now[i])
    buffer.copy_(gradient);
}

void Sgd::loop(Trained& trained, const SgdOptions& options) {
  Tensor gradient;  // like Python's variable, alive until the next parameter's replaces it
  for (std::size_t i = 0; i < trained.parameters.size(); ++i) {
    const Tensor& parameter = trained.parameters[i];
    gradient = trained.gradients[i];
    if (options.weight_decay != 0) gradient = gradient.add(parameter, options.weight_decay);
    if (options.momentum != 0) {
      update_buffer(trained, i, gradient, options);
      const Tensor& buffer = trained.states[i]->at(kBuffer);
      gradient = options.nesterov ? gradient.add(buffer, options.momentum) : buffer;
    }
    parameter.add_(gradient, -options.learning_rate);
  }
}

Tensors Sgd::update_buffers(const Trained& trained, const Indices& group, const Tensors& gradients,
                            const SgdOptions& options) {
  Tensors buffers = detail::select(kept(trained, kBuffer), group);
  const auto is_new = [&](std::size_t i) { return trained.is_new[i]; };
  if (std::none_of(group.begin(), group.end(), is_new)) {
    at::_foreach_mul_(buffers, options.momentum);
    at::_foreach_add_(buffers, gradients, 1 - options.dampening);
    return buffers;
  }
  for (std::size_t i = 0; i < group.size(); ++i)
    update_buffer(trained, group[i], gradients[i], options);
  return buffers;
}

void Sgd::foreach (Trained& trained, const SgdOptions& options) {
  Tensors gradients;
  for (const Indices& group : detail::by_device_and_type(trained.parameters)) {
    const Tensors parameters = detail::select(trained.parameters, group);
    gradients = detail::select(trained.gradients, group);
    const bool sparse = std::any_of(gradients.begin(), gradients.end(),
                                    [](const Tensor& gradient) { return gradient.is_sparse(); });
    if (options.weight_decay != 0)
      gradients = at::_foreach_add(gradients, parameters, options.weight_decay);
    if (options.momentum != 0) {
      const Tensors buffers = update_buffers(trained, group, gradients, options);
      // Without weight decay this modifies the parameters' own gradients, as PyTorch does.
      if (options.nesterov)
        at::_foreach_add_(gradients, buffers, options.momentum);
      else
        gradients = buffers;
    }
    if (!sparse)
      at::_foreach_add_(parameters, gradients, -options.learning_rate);
    else
      for (std::size_t i = 0; i < parameters.size(); ++i)
        parameters[i].add_(gradients[i], -options.learning_rate);
  }
}

// LibTorch's kernel for the CPU takes momenta of 16 bits for floats and reads past their end
// (pytorch/pytorch#191763), up to 2.15 at least.
bool has_broken_kernel(const Tensor& parameter) {
  return detail::has_16_bits(parameter) && !parameter.is_cuda();
}

// Of one device and type, all new or none. New buffers are zero: the kernel makes them the gradient
// if nothing is dampened. PyTorch instead marks all as new, and has garbage in them after a first
// step that a loss scaler skipped.
void Sgd::fused(const Trained& trained, const Indices& of, SgdOptions options,
                const GradientScale& scale) {
  if (trained.is_new[of[0]]) options.dampening = 0;
  const auto all = [&](const char* name) { return detail::select(kept(trained, name), of); };
  const Tensors buffers = options.momentum != 0 ? all(kBuffer) : Tensors();
  const bool is_stochastic = options.rounding == Rounding::stochastic;
  const Tensors steps = is_stochastic ? all(kStep) : Tensors();
  const kernels::StepLists lists = detail::kernel_lists(trained.parameters, trained.gradients, of,
                                                        trained.indices, steps, scale);
  if (is_stochastic) at::_foreach_add_(steps, 1);
  const Tensor& first = trained.parameters[of[0]];
  if (has_broken_kernel(first) || (is_stochastic && detail::has_16_bits(first)))
    kernels::sgd_(lists, buffers,
                  {options.learning_rate, options.momentum, options.dampening, options.weight_decay,
                   options.nesterov},
                  detail::rounding_of(options.rounding, options.seed));
  else
    at::_fused_sgd_(lists.parameters, lists.gradients, buffers, options.weight_decay,
                    options.momentum, options.learning_rate, options.dampening, options.nesterov,
                    false, false, lists.scale, lists.not_finite);
  detail::take_back(steps, scale);
}

void Sgd::fused(Trained& trained, const SgdOptions& options, const GradientScale& scale) const {
  for (const Indices& group : detail::by_device_and_type(trained.parameters)) {
    const GradientScale scale_here = here(trained.parameters[group[0]].device(), scale);
    for (const bool is_new : {false, true}) {
      Indices chosen;
      for (const std::size_t i : group)
        if (trained.is_new[i] == is_new) chosen.push_back(i);
      if (!chosen.empty()) fused(trained, chosen, options, scale_here);
    }
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Tensor> parameters, const SgdOptions& options) {
  return make_sgd({{std::move(parameters), options}});
}

std::unique_ptr<Optimizer> make_sgd(const std::vector<Group<SgdOptions>>& groups) {
  for (const auto& [parameters, options] : groups) {
    detail::check_not_negative("SGD", "a learning rate", options.learning_rate);
    detail::check_not_negative("SGD", "a momentum", options.momentum);
    detail::check_not_negative("SGD", "a weight decay", options.weight_decay);
    if (options.rounding == Rounding::stochastic) detail::check_can_round("SGD", options.form);
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
      throw UsageError(expectation("SGD", "a momentum and no dampening with nesterov",
                                   options.momentum == 0 ? "no momentum" : "a dampening"));
  }
  return std::make_unique<Sgd>(groups);
}

}  // namespace headroom::optim
