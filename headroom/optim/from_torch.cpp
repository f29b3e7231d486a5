#include "headroom/optim/from_torch.h"

#include <ATen/ATen.h>
#include <c10/util/Type.h>
#include <torch/optim.h>

#include <tuple>

#include "headroom/base/error.h"

namespace headroom::optim {
namespace {

namespace theirs = torch::optim;
using at::Tensor;

// ---- Options ----

template <typename Options, typename Theirs>
Options adam_options(const Theirs& of, OptimizerForm form) {
  return {.learning_rate = of.lr(),
          .beta1 = std::get<0>(of.betas()),
          .beta2 = std::get<1>(of.betas()),
          .epsilon = of.eps(),
          .weight_decay = of.weight_decay(),
          .amsgrad = of.amsgrad(),
          .form = form};
}

AdamWOptions options_of(const theirs::AdamWOptions& of, OptimizerForm form) {
  return adam_options<AdamWOptions>(of, form);
}

AdamOptions options_of(const theirs::AdamOptions& of, OptimizerForm form) {
  return adam_options<AdamOptions>(of, form);
}

SgdOptions options_of(const theirs::SGDOptions& of, OptimizerForm form) {
  return {.learning_rate = of.lr(),
          .momentum = of.momentum(),
          .dampening = of.dampening(),
          .weight_decay = of.weight_decay(),
          .nesterov = of.nesterov(),
          .form = form};
}

RmsPropOptions options_of(const theirs::RMSpropOptions& of, OptimizerForm form) {
  return {.learning_rate = of.lr(),
          .alpha = of.alpha(),
          .epsilon = of.eps(),
          .weight_decay = of.weight_decay(),
          .momentum = of.momentum(),
          .centered = of.centered(),
          .form = form == OptimizerForm::fused ? OptimizerForm::foreach : form};
}

// The groups with options of this class; `Options` follows from options_of.
template <typename Theirs>
auto groups_of(const theirs::Optimizer& optimizer, OptimizerForm form) {
  std::vector<Group<decltype(options_of(std::declval<Theirs>(), form))>> groups;
  for (const theirs::OptimizerParamGroup& group : optimizer.param_groups())
    groups.push_back(
        {group.params(), options_of(dynamic_cast<const Theirs&>(group.options()), form)});
  return groups;
}

std::unique_ptr<Optimizer> without_states(const theirs::Optimizer& of, OptimizerForm form) {
  if (dynamic_cast<const theirs::AdamW*>(&of) != nullptr)
    return make_adamw(groups_of<theirs::AdamWOptions>(of, form));
  if (dynamic_cast<const theirs::Adam*>(&of) != nullptr)
    return make_adam(groups_of<theirs::AdamOptions>(of, form));
  if (dynamic_cast<const theirs::SGD*>(&of) != nullptr)
    return make_sgd(groups_of<theirs::SGDOptions>(of, form));
  if (dynamic_cast<const theirs::RMSprop*>(&of) != nullptr)
    return make_rmsprop(groups_of<theirs::RMSpropOptions>(of, form));
  throw UsageError(expectation("from_torch", "an AdamW, Adam, SGD or RMSprop of torch::optim",
                               c10::demangle(typeid(of).name()), "a new optimizer of optimizer.h"));
}

// ---- States ----

Tensor count(std::int64_t steps) {
  const bool in_double = c10::get_default_dtype_as_scalartype() == at::kDouble;
  return at::full({}, steps, in_double ? at::kDouble : at::kFloat);
}

template <typename Theirs>
State adam_state(const Theirs& of) {
  return {{"step", count(of.step())},
          {"exp_avg", of.exp_avg()},
          {"exp_avg_sq", of.exp_avg_sq()},
          {"max_exp_avg_sq", of.max_exp_avg_sq()}};
}

State all_of(const theirs::OptimizerParamState& of) {
  if (const auto* const adamw = dynamic_cast<const theirs::AdamWParamState*>(&of))
    return adam_state(*adamw);
  if (const auto* const adam = dynamic_cast<const theirs::AdamParamState*>(&of))
    return adam_state(*adam);
  if (const auto* const sgd = dynamic_cast<const theirs::SGDParamState*>(&of))
    return {{"momentum_buffer", sgd->momentum_buffer()}};
  const auto& rmsprop = dynamic_cast<const theirs::RMSpropParamState&>(of);
  return {{"step", count(rmsprop.step())},
          {"square_avg", rmsprop.square_avg()},
          {"momentum_buffer", rmsprop.momentum_buffer()},
          {"grad_avg", rmsprop.grad_avg()}};
}

}  // namespace

std::unique_ptr<Optimizer> from_torch(const theirs::Optimizer& of, OptimizerForm form) {
  std::unique_ptr<Optimizer> ours = without_states(of, form);
  for (std::size_t i = 0; i < ours->parameters().size(); ++i) {
    const auto found = of.state().find(ours->parameters()[i].unsafeGetTensorImpl());
    if (found == of.state().end()) continue;
    State state = all_of(*found->second);
    std::erase_if(state, [](const auto& each) { return !each.second.defined(); });
    ours->set_state(i, std::move(state));
  }
  return ours;
}

}  // namespace headroom::optim
