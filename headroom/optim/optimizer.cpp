#include "headroom/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/optim/detail/check.h"

namespace headroom::optim {
namespace {

// Identifies a tensor and its version, which every in-place operation increments.
using Mark = std::pair<const c10::TensorImpl*, std::int64_t>;

Mark mark_of(const at::Tensor& tensor) {
  return {tensor.unsafeGetTensorImpl(), tensor.is_inference() ? 0 : tensor._version()};
}

void check_parameter(const at::Tensor& parameter) {
  if (!parameter.defined() || !parameter.is_leaf())
    throw UsageError(expectation("Optimizer", "parameters that can be trained",
                                 parameter.defined()
                                     ? "the result of an operator, which has no gradient of its own"
                                     : "an undefined tensor",
                                 "the model's parameters()"));
}

void check_index(const char* of, std::size_t index, std::size_t count) {
  if (index >= count)
    throw UsageError(expectation("Optimizer", std::string(of) + " below " + std::to_string(count),
                                 std::to_string(index)));
}

std::string described(const std::string& name, const at::Tensor& tensor) {
  std::ostringstream text;
  text << name << ", " << tensor.sizes() << " of " << c10::toString(tensor.scalar_type());
  return text.str();
}

}  // namespace

// Everything that an update may change, on the host.
struct Optimizer::Copies {
  explicit Copies(const std::vector<Trained>& groups) {
    for (const Trained& group : groups) {
      for (const at::Tensor& parameter : group.parameters) add(parameter);
      for (const at::Tensor& gradient : group.gradients) add(gradient);
      for (State* state : group.states) {
        states.emplace_back(state, *state);
        for (const auto& [name, tensor] : *state) add(tensor);
      }
    }
  }
  void put_back() const {
    for (const auto& [state, before] : states) *state = before;
    for (const auto& [tensor, value] : values) tensor.copy_(value);
  }

  std::vector<std::pair<State*, State>> states;
  std::vector<std::pair<at::Tensor, at::Tensor>> values;

 private:
  void add(const at::Tensor& tensor) {
    values.emplace_back(tensor, tensor.detach().to(at::kCPU, tensor.scalar_type(),
                                                   /*non_blocking=*/false, /*copy=*/true));
  }
};

Optimizer::Optimizer(const std::vector<Part>& groups, OptimizerForm form) : form_(form) {
  std::set<const c10::TensorImpl*> met;
  for (const Part& group : groups) {
    for (const at::Tensor& parameter : group.parameters) {
      check_parameter(parameter);
      if (!met.insert(parameter.unsafeGetTensorImpl()).second)
        throw UsageError(expectation("Optimizer", "each parameter once", "one a second time"));
      parameters_.push_back(parameter);
    }
    group_ends_.push_back(parameters_.size());
    learning_rates_.push_back(group.learning_rate);
  }
  if (parameters_.empty() && !groups.empty())
    throw UsageError(
        expectation("Optimizer", "parameters to train", "none", "the model's parameters()"));
  states_.resize(parameters_.size());
  has_run_.resize(parameters_.size());
  is_reserved_.resize(parameters_.size());
}

void Optimizer::step() {
  run({}, false);
}

void Optimizer::step(const GradientScale& scale) {
  if (!takes_scale())
    throw UsageError(expectation("Optimizer::step", "a fused optimizer, which unscales by itself",
                                 "a scale for another form", "LossScaler::step"));
  run(scale, false);
}

void Optimizer::commit(const GradientScale& scale) {
  if (!can_commit())
    throw UsageError(expectation("Optimizer::commit", "a form that allocates nothing",
                                 "the form loop or foreach", "OptimizerForm::fused, or step()"));
  if ((scale.scale.defined() || scale.not_finite.defined()) && !takes_scale())
    throw UsageError(expectation("Optimizer::commit",
                                 "no scale for an optimizer without a fused form", "one",
                                 "LossScaler::step"));
  run(scale, true);
}

void Optimizer::reserve() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> trained;
  std::vector<State> states = states_;
  std::vector<bool> is_reserved(parameters_.size());
  std::size_t group = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    while (i == group_ends_[group]) ++group;
    if (!parameters_[i].requires_grad()) continue;
    trained.push_back(parameters_[i]);
    is_reserved[i] = true;
    if (states[i].empty()) states[i] = make_state(group, parameters_[i], {});
  }
  std::vector<std::pair<c10::Device, GradientScale>> scales;
  for (const at::Tensor& parameter : trained) {
    const auto is_here = [&](const auto& one) { return one.first == parameter.device(); };
    if (std::any_of(scales.begin(), scales.end(), is_here)) continue;
    const auto number = [&] {
      return at::zeros({}, at::TensorOptions(parameter.device()).dtype(at::kFloat));
    };
    scales.emplace_back(parameter.device(), GradientScale{number(), number()});
  }
  reserve_scratch(trained);
  states_ = std::move(states);
  is_reserved_ = std::move(is_reserved);
  reserved_scales_ = std::move(scales);
}

void Optimizer::check_reserved(const std::vector<Trained>& groups) const {
  for (const Trained& group : groups)
    for (const std::size_t i : group.indices) {
      const auto is_here = [&](const auto& one) { return one.first == parameters_[i].device(); };
      if (!is_reserved_[i] ||
          std::none_of(reserved_scales_.begin(), reserved_scales_.end(), is_here))
        throw UsageError(expectation("Optimizer::commit", "what it needs to be reserved",
                                     "a parameter that was not, or not on its present device",
                                     "optimizer->reserve()"));
    }
}

void Optimizer::run(const GradientScale& scale, bool in_place) {
  if (interrupted_)
    throw UsageError(
        expectation("Optimizer::step", "parameters and states after a complete step",
                    "those of a step that threw",
                    "restoring them to before the step (set_state), then Optimizer::restored()"));
  const at::NoGradGuard no_grad;
  std::vector<Trained> all = trained();
  for (const Trained& group : all) check(group);
  if (in_place)
    check_reserved(all);
  else
    make_states(all);
  std::optional<Copies> copies;
  if (protected_ && form_ != OptimizerForm::fused && !in_place) copies.emplace(all);
  const auto marks = [&all] {
    std::vector<Mark> each;
    for (const Trained& group : all) {
      for (const at::Tensor& parameter : group.parameters) each.push_back(mark_of(parameter));
      for (const at::Tensor& gradient : group.gradients) each.push_back(mark_of(gradient));
      for (const State* state : group.states)
        for (const auto& [name, tensor] : *state) each.push_back(mark_of(tensor));
    }
    return each;
  };
  const std::vector<Mark> before = marks();
  try {
    for (std::size_t group = 0; group < all.size(); ++group) {
      if (in_place)
        update_in_place(group, all[group], scale);
      else
        update(group, all[group], scale);
    }
  } catch (...) {
    interrupted_ = marks() != before;
    if (copies) {
      copies->put_back();
      interrupted_ = false;
    }
    if (!interrupted_) forget_new_states(all);
    throw;
  }
  for (const Trained& group : all)
    for (const std::size_t i : group.indices) has_run_[i] = true;
}

// States that this step made from gradients are made again in the next one.
void Optimizer::forget_new_states(const std::vector<Trained>& groups) {
  for (const Trained& group : groups)
    for (std::size_t i = 0; i < group.states.size(); ++i)
      if (group.made_now[i]) group.states[i]->clear();
}

void Optimizer::make_states(std::vector<Trained>& groups) const {
  std::vector<State> made;
  for (std::size_t at = 0; at < groups.size(); ++at)
    for (std::size_t i = 0; i < groups[at].states.size(); ++i) {
      const bool is_missing = groups[at].states[i]->empty();
      groups[at].made_now[i] = is_missing;
      if (is_missing)
        made.push_back(make_state(at, groups[at].parameters[i], groups[at].gradients[i]));
    }
  auto next = made.begin();
  for (Trained& group : groups)
    for (std::size_t i = 0; i < group.states.size(); ++i)
      if (group.made_now[i]) *group.states[i] = std::move(*next++);
}

std::vector<Optimizer::Trained> Optimizer::trained() {
  std::vector<Trained> groups(group_ends_.size());
  std::size_t group = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    while (i == group_ends_[group]) ++group;
    const at::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    Trained& to = groups[group];
    to.parameters.push_back(parameters_[i]);
    to.gradients.push_back(gradient);
    to.states.push_back(&states_[i]);
    to.indices.push_back(i);
    to.is_new.push_back(!has_run_[i]);
    to.made_now.push_back(false);
  }
  return groups;
}

GradientScale Optimizer::here(c10::Device device, const GradientScale& scale) const {
  const auto reserved = std::find_if(reserved_scales_.begin(), reserved_scales_.end(),
                                     [&](const auto& one) { return one.first == device; });
  const auto copy = [&](const at::Tensor& number, at::Tensor GradientScale::*member) {
    if (!number.defined() || number.device() == device) return number;
    if (reserved == reserved_scales_.end())
      return number.to(at::TensorOptions(device), /*non_blocking=*/true);
    at::Tensor place = reserved->second.*member;
    return place.copy_(number, /*non_blocking=*/true);
  };
  return {copy(scale.scale, &GradientScale::scale),
          copy(scale.not_finite, &GradientScale::not_finite)};
}

void Optimizer::set_learning_rate(double rate) {
  for (std::size_t group = 0; group < groups(); ++group) set_learning_rate(rate, group);
}

void Optimizer::set_learning_rate(double rate, std::size_t group) {
  detail::check_not_negative("Optimizer::set_learning_rate", "a learning rate", rate);
  check_group(group);
  if (!learning_rates_[group])
    throw UsageError(expectation("Optimizer::set_learning_rate", "an optimizer that has one",
                                 "Adafactor with relative_step", "relative_step = false"));
  learning_rates_[group] = rate;
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

std::optional<double> Optimizer::learning_rate(std::size_t group) const {
  if (groups() == 0) return {};  // make_idle()
  check_group(group);
  return learning_rates_[group];
}

const State& Optimizer::state(std::size_t parameter) const {
  check_index("a parameter", parameter, parameters_.size());
  return states_[parameter];
}

void Optimizer::check_group(std::size_t group) const {
  check_index("a group", group, groups());
}

// Throws UsageError unless it is empty, or has the tensors that a state of this parameter has.
void Optimizer::check_state(std::size_t parameter, const State& state) const {
  check_index("a parameter", parameter, parameters_.size());
  if (state.empty()) return;
  const at::NoGradGuard no_grad;
  const auto group = std::upper_bound(group_ends_.begin(), group_ends_.end(), parameter);
  const State like = make_state(static_cast<std::size_t>(group - group_ends_.begin()),
                                parameters_[parameter].detach().to(at::kMeta), {});
  for (const auto& [name, wanted] : like) {
    const auto found = state.find(name);
    const bool is_there = found != state.end() && found->second.defined();
    const bool fits = is_there && found->second.sizes() == wanted.sizes() &&
                      (name == "step" || found->second.dtype() == wanted.dtype());
    if (!fits)
      throw UsageError(expectation("Optimizer::set_state", described(name, wanted),
                                   is_there ? described(name, found->second) : "none"));
  }
}

void Optimizer::set_state(std::size_t parameter, State state) {
  check_state(parameter, state);
  const at::Tensor& of = parameters_[parameter];
  for (auto& [name, tensor] : state)
    tensor = tensor.to(name == "step" ? place_of_steps(of) : of.device());
  has_run_[parameter] = !state.empty();
  if (state.empty() && !states_[parameter].empty()) is_reserved_[parameter] = false;
  states_[parameter] = std::move(state);
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

namespace {

class Idle final : public Optimizer {
 public:
  Idle() : Optimizer({}, OptimizerForm::fused) {}
  [[nodiscard]] bool takes_scale() const override { return true; }

 private:
  [[nodiscard]] State make_state(std::size_t, const at::Tensor&, const at::Tensor&) const override {
    return {};
  }
  void update(std::size_t, Trained&, const GradientScale&) override {}
};

}  // namespace

std::unique_ptr<Optimizer> make_idle() {
  return std::make_unique<Idle>();
}

}  // namespace headroom::optim
