// torch/optim/sgd.py
#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/optim/detail/check.h"
#include "headroom/optim/detail/groups.h"
#include "headroom/optim/detail/multiply.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

using at::Tensor;
using detail::Indices;
using detail::Tensors;

constexpr const char* kBuffer = "momentum_buffer";

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<Tensor> parameters, const SgdOptions& options)
      : Optimizer(std::move(parameters), options.form), options_(options) {}

  [[nodiscard]] bool takes_scale() const override { return form() == OptimizerForm::fused; }

 private:
  void check(const Trained& trained) const override;
  [[nodiscard]] State make_state(const Tensor& parameter, const Tensor& gradient) const override;
  void update(Trained& trained, const GradientScale& scale) override;
  void loop(Trained& trained) const;
  void foreach (Trained& trained) const;
  void fused(Trained& trained, const GradientScale& scale) const;

  void add_to_buffer(const Tensor& buffer, const Tensor& gradient) const;
  [[nodiscard]] Tensors add_to_buffers(const Trained& trained, const Indices& group,
                                       const Tensors& gradients) const;

  SgdOptions options_;
};

void Sgd::check(const Trained& trained) const {
  if (form() != OptimizerForm::fused) return;
  detail::check_dense("SGD, fused", trained.gradients);
  const auto has_none = [](const State* state) { return state->empty(); };
  const std::vector<State*>& states = trained.states;
  if (options_.momentum != 0 && std::any_of(states.begin(), states.end(), has_none) &&
      !std::all_of(states.begin(), states.end(), has_none))
    throw UsageError(expectation("SGD, fused", "the same parameters with a gradient each time",
                                 "one that had none in the first step", "the foreach form"));
}

// The first buffer is the gradient (with weight decay), without dampening. The fused kernel fills
// its buffer itself.
State Sgd::make_state(const Tensor& parameter, const Tensor& gradient) const {
  if (options_.momentum == 0) return {};
  if (form() == OptimizerForm::fused) return {{kBuffer, at::empty_like(gradient)}};
  if (options_.weight_decay == 0) return {{kBuffer, gradient.detach().clone()}};
  return {{kBuffer, gradient.add(parameter, options_.weight_decay)}};
}

void Sgd::update(Trained& trained, const GradientScale& scale) {
  if (trained.parameters.empty()) return;
  switch (form()) {
    case OptimizerForm::loop:
      return loop(trained);
    case OptimizerForm::foreach:
      return foreach (trained);
    case OptimizerForm::fused:
      return fused(trained, scale);
  }
}

void Sgd::add_to_buffer(const Tensor& buffer, const Tensor& gradient) const {
  detail::multiply_(buffer, options_.momentum).add_(gradient, 1 - options_.dampening);
}

void Sgd::loop(Trained& trained) const {
  Tensor gradient;  // like Python's variable, alive until the next parameter's replaces it
  for (std::size_t i = 0; i < trained.parameters.size(); ++i) {
    const Tensor& parameter = trained.parameters[i];
    gradient = trained.gradients[i];
    if (options_.weight_decay != 0) gradient = gradient.add(parameter, options_.weight_decay);
    if (options_.momentum != 0) {
      const Tensor& buffer = (*trained.states[i])[kBuffer];
      if (!trained.is_new[i]) add_to_buffer(buffer, gradient);
      gradient = options_.nesterov ? gradient.add(buffer, options_.momentum) : buffer;
    }
    parameter.add_(gradient, -options_.learning_rate);
  }
}

Tensors Sgd::add_to_buffers(const Trained& trained, const Indices& group,
                            const Tensors& gradients) const {
  Tensors buffers = detail::select(kept(trained, kBuffer), group);
  const auto is_new = [&](std::size_t i) { return trained.is_new[i]; };
  if (std::none_of(group.begin(), group.end(), is_new)) {
    at::_foreach_mul_(buffers, options_.momentum);
    at::_foreach_add_(buffers, gradients, 1 - options_.dampening);
    return buffers;
  }
  for (std::size_t i = 0; i < group.size(); ++i)
    if (!is_new(group[i])) add_to_buffer(buffers[i], gradients[i]);
  return buffers;
}

void Sgd::foreach (Trained& trained) const {
  Tensors gradients;
  for (const Indices& group : detail::by_device_and_type(trained.parameters)) {
    const Tensors parameters = detail::select(trained.parameters, group);
    gradients = detail::select(trained.gradients, group);
    const bool sparse = std::any_of(gradients.begin(), gradients.end(),
                                    [](const Tensor& gradient) { return gradient.is_sparse(); });
    if (options_.weight_decay != 0)
      gradients = at::_foreach_add(gradients, parameters, options_.weight_decay);
    if (options_.momentum != 0) {
      const Tensors buffers = add_to_buffers(trained, group, gradients);
      // Without weight decay this modifies the parameters' own gradients, as PyTorch does.
      if (options_.nesterov)
        at::_foreach_add_(gradients, buffers, options_.momentum);
      else
        gradients = buffers;
    }
    if (!sparse)
      at::_foreach_add_(parameters, gradients, -options_.learning_rate);
    else
      for (std::size_t i = 0; i < parameters.size(); ++i)
        parameters[i].add_(gradients[i], -options_.learning_rate);
  }
}

void Sgd::fused(Trained& trained, const GradientScale& scale) const {
  const bool first = options_.momentum != 0 && trained.is_new.front();
  const Tensors buffers = options_.momentum != 0 ? kept(trained, kBuffer) : Tensors();
  for (const Indices& group : detail::by_device_and_type(trained.parameters)) {
    const Tensors parameters = detail::select(trained.parameters, group);
    const c10::Device device = parameters[0].device();
    at::_fused_sgd_(parameters, detail::select(trained.gradients, group),
                    detail::select(buffers, group), options_.weight_decay, options_.momentum,
                    options_.learning_rate, options_.dampening, options_.nesterov, false, first,
                    detail::on(device, scale.scale), detail::on(device, scale.not_finite));
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Tensor> parameters, const SgdOptions& options) {
  detail::check_not_negative("SGD", "a learning rate", options.learning_rate);
  detail::check_not_negative("SGD", "a momentum", options.momentum);
  detail::check_not_negative("SGD", "a weight decay", options.weight_decay);
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
    throw UsageError(expectation("SGD", "a momentum and no dampening with nesterov",
                                 options.momentum == 0 ? "no momentum" : "a dampening"));
  return std::make_unique<Sgd>(std::move(parameters), options);
}

}  // namespace headroom::optim
