#include "headroom/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "headroom/base/error.h"

namespace headroom::optim {
namespace {

class Nothing : public Optimizer {
 public:
  explicit Nothing(std::vector<at::Tensor> parameters)
      : Optimizer(std::move(parameters), OptimizerForm::loop) {}

 private:
  [[nodiscard]] State make_state(const at::Tensor&, const at::Tensor&) const override { return {}; }
  void update(Trained&, const GradientScale&) override {}
};

// Identifies a tensor and its version, which every in-place operation increments.
using Mark = std::pair<const c10::TensorImpl*, std::int64_t>;

Mark mark_of(const at::Tensor& tensor) {
  return {tensor.unsafeGetTensorImpl(), tensor.is_inference() ? 0 : tensor._version()};
}

// The settings of Hugging Face's Trainer with the caller's learning rate. Source: transformers
// 4.57.6, trainer.py, OptimizerNames.ADAFACTOR.
AdafactorHfOptions trainers_adafactor(std::optional<double> learning_rate) {
  AdafactorHfOptions options;
  options.learning_rate = learning_rate.value_or(1e-3);
  options.scale_parameter = false;
  options.relative_step = false;
  return options;
}

template <typename Options>
Options with(OptimizerForm form, std::optional<double> learning_rate) {
  Options options;
  options.form = form;
  if (learning_rate) options.learning_rate = *learning_rate;
  return options;
}

SgdOptions with_momentum(SgdOptions options) {
  options.momentum = 0.9;
  return options;
}

}  // namespace

Optimizer::Optimizer(std::vector<at::Tensor> parameters, OptimizerForm form)
    : parameters_(std::move(parameters)), states_(parameters_.size()), form_(form) {}

void Optimizer::step() {
  run({});
}

void Optimizer::step(const GradientScale& scale) {
  if (!takes_scale())
    throw UsageError(expectation("Optimizer::step", "a fused optimizer, which unscales by itself",
                                 "a scale for another form", "LossScaler::step"));
  run(scale);
}

void Optimizer::run(const GradientScale& scale) {
  if (interrupted_)
    throw UsageError(
        expectation("Optimizer::step", "parameters and states after a complete step",
                    "those of a step that threw",
                    "restoring them to before the step (set_state), then Optimizer::restored()"));
  const at::NoGradGuard no_grad;
  Trained all = trained();
  check(all);
  make_states(all);
  const auto marks = [&all] {
    std::vector<Mark> each;
    for (const at::Tensor& parameter : all.parameters) each.push_back(mark_of(parameter));
    for (const at::Tensor& gradient : all.gradients) each.push_back(mark_of(gradient));
    for (const State* state : all.states)
      for (const auto& [name, tensor] : *state) each.push_back(mark_of(tensor));
    return each;
  };
  const std::vector<Mark> before = marks();
  try {
    update(all, scale);
  } catch (...) {
    interrupted_ = marks() != before;
    for (std::size_t i = 0; !interrupted_ && i < all.states.size(); ++i)
      if (all.is_new[i]) all.states[i]->clear();  // made again in the next step
    throw;
  }
}

void Optimizer::make_states(Trained& trained) const {
  std::vector<State> made(trained.states.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    trained.is_new.push_back(trained.states[i]->empty());
    if (trained.is_new[i]) made[i] = make_state(trained.parameters[i], trained.gradients[i]);
  }
  for (std::size_t i = 0; i < made.size(); ++i)
    if (trained.is_new[i]) *trained.states[i] = std::move(made[i]);
}

Optimizer::Trained Optimizer::trained() {
  Trained all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    all.parameters.push_back(parameters_[i]);
    all.gradients.push_back(gradient);
    all.states.push_back(&states_[i]);
  }
  return all;
}

void Optimizer::zero_grad(bool set_to_none) {
  if (set_to_none)
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  else
    fill_gradients();
}

void Optimizer::fill_gradients() const {
  const at::NoGradGuard no_grad;
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> together;
  for (const at::Tensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.grad_fn())
      gradient.detach_();
    else
      gradient.set_requires_grad(false);
    if (form_ == OptimizerForm::loop || gradient.is_sparse())
      gradient.zero_();
    else
      together[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
  }
  for (const auto& [place, gradients] : together) at::_foreach_zero_(gradients);
}

void Optimizer::set_state(std::size_t parameter, State state) {
  const at::Tensor& of = parameters_.at(parameter);
  for (auto& [name, tensor] : state)
    tensor = tensor.to(name == "step" ? place_of_steps(of) : of.device());
  states_.at(parameter) = std::move(state);
}

std::vector<at::Tensor> Optimizer::kept(const Trained& trained, const char* name) {
  std::vector<at::Tensor> tensors;
  for (const State* state : trained.states) {
    const auto found = state->find(name);
    tensors.push_back(found == state->end() ? at::Tensor() : found->second);
  }
  return tensors;
}

c10::Device Optimizer::place_of_steps(const at::Tensor& parameter) const {
  return form_ == OptimizerForm::fused ? parameter.device() : c10::Device(c10::kCPU);
}

std::unique_ptr<Optimizer> make_optimizer(model::Optimizer kind, OptimizerForm form,
                                          std::vector<at::Tensor> parameters,
                                          std::optional<double> learning_rate) {
  switch (kind) {
    case model::Optimizer::adamw:
      return make_adamw(std::move(parameters), with<AdamWOptions>(form, learning_rate));
    case model::Optimizer::adam:
      return make_adam(std::move(parameters), with<AdamOptions>(form, learning_rate));
    case model::Optimizer::sgd:
      return make_sgd(std::move(parameters), with<SgdOptions>(form, learning_rate));
    case model::Optimizer::sgd_momentum:
      return make_sgd(std::move(parameters), with_momentum(with<SgdOptions>(form, learning_rate)));
    case model::Optimizer::adafactor:
      if (form == OptimizerForm::fused) form = OptimizerForm::loop;
      return make_adafactor(std::move(parameters), with<AdafactorOptions>(form, learning_rate));
    case model::Optimizer::adafactor_hf:
      return make_adafactor_hf(std::move(parameters), trainers_adafactor(learning_rate));
    case model::Optimizer::none:
      return std::make_unique<Nothing>(std::move(parameters));
    case model::Optimizer::adamw8bit:
      break;
  }
  throw UsageError(expectation("make_optimizer", "an optimizer that can run", "adamw8bit",
                               "adamw, or `estimate --quick`, which has a formula for it"));
}

}  // namespace headroom::optim
