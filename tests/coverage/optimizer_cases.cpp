#include "programs.h"

namespace headroom::coverage {
namespace {

namespace optim = torch::optim;

nn::Sequential net(Trial& t) {
  return t.make([] { return nn::Sequential(nn::Linear(5, 7), nn::Tanh(), nn::Linear(7, 3)); });
}

std::vector<Tensor> tensors_in(const optim::AdagradParamState& state) {
  return {state.sum()};
}
std::vector<Tensor> tensors_in(const optim::AdamParamState& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}
std::vector<Tensor> tensors_in(const optim::AdamWParamState& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}
std::vector<Tensor> tensors_in(const optim::RMSpropParamState& state) {
  return {state.square_avg(), state.momentum_buffer(), state.grad_avg()};
}
std::vector<Tensor> tensors_in(const optim::SGDParamState& state) {
  return {state.momentum_buffer()};
}
std::vector<Tensor> tensors_in(const optim::LBFGSParamState& state) {
  std::vector<Tensor> all = {state.d(), state.H_diag(), state.prev_flat_grad()};
  for (const auto* list : {&state.old_dirs(), &state.old_stps(), &state.ro()})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

template <typename State>
Outputs state_of(optim::Optimizer& optimizer) {
  std::vector<Tensor> all;
  for (const auto& group : optimizer.param_groups())
    for (const Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      for (const Tensor& tensor : tensors_in(static_cast<const State&>(*found->second)))
        all.push_back(tensor);
    }
  return all;
}

template <typename Optimizer, typename State, typename Options>
Program two_steps(Options options) {
  return [=](Trial& t) -> Outputs {
    auto module = net(t);
    Optimizer optimizer(module->parameters(), options);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      module->forward(t.constant({4, 5})).square().mean().backward();
      optimizer.step();
    }
    return state_of<State>(optimizer);
  };
}

Program lbfgs(optim::LBFGSOptions options) {
  return [=](Trial& t) -> Outputs {
    auto module = net(t);
    const Tensor x = t.constant({4, 5});
    optim::LBFGS optimizer(module->parameters(), options);
    for (int step = 0; step < 2; ++step)
      optimizer.step([&] {
        optimizer.zero_grad();
        Tensor loss = module->forward(x).square().mean();
        loss.backward();
        return loss;
      });
    return state_of<optim::LBFGSParamState>(optimizer);
  };
}

// Two steps of SGD, and what `adapt` does to the learning rate after each.
template <typename Scheduler, typename Adapt>
Program scheduled(Adapt adapt) {
  return [=](Trial& t) -> Outputs {
    auto module = net(t);
    optim::SGD optimizer(module->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    Scheduler scheduler = adapt.make(optimizer);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      module->forward(t.constant({4, 5})).square().mean().backward();
      optimizer.step();
      adapt.step(scheduler);
    }
    return state_of<optim::SGDParamState>(optimizer);
  };
}

struct InSteps {
  static optim::StepLR make(optim::Optimizer& optimizer) { return {optimizer, 1, 0.5}; }
  static void step(optim::StepLR& scheduler) { scheduler.step(); }
};

struct OnPlateau {
  static optim::ReduceLROnPlateauScheduler make(optim::Optimizer& optimizer) {
    return {optimizer, optim::ReduceLROnPlateauScheduler::min, 0.5F, 0};
  }
  static void step(optim::ReduceLROnPlateauScheduler& scheduler) { scheduler.step(1.0F); }
};

template <typename Options>
Program adagrad(Options options) {
  return two_steps<optim::Adagrad, optim::AdagradParamState>(options);
}
template <typename Options>
Program adam(Options options) {
  return two_steps<optim::Adam, optim::AdamParamState>(options);
}
template <typename Options>
Program adamw(Options options) {
  return two_steps<optim::AdamW, optim::AdamWParamState>(options);
}
template <typename Options>
Program rmsprop(Options options) {
  return two_steps<optim::RMSprop, optim::RMSpropParamState>(options);
}
template <typename Options>
Program sgd(Options options) {
  return two_steps<optim::SGD, optim::SGDParamState>(options);
}

}  // namespace

Cases optimizer_cases() {
  return {
      {"optim::Adagrad", "", adagrad(optim::AdagradOptions(0.1))},
      {"optim::Adagrad", "with its options",
       adagrad(optim::AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(
           0.5))},
      {"optim::Adagrad", "of sparse gradients",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::Embedding>(nn::EmbeddingOptions(10, 4).sparse(true));
         optim::Adagrad optimizer(module->parameters(), optim::AdagradOptions(0.1));
         module->forward(t.below(10, {3, 4})).square().sum().backward();
         optimizer.step();
         return state_of<optim::AdagradParamState>(optimizer);
       }},
      {"optim::Adam", "", adam(optim::AdamOptions(0.1))},
      {"optim::Adam", "with its options",
       adam(optim::AdamOptions(0.1).weight_decay(0.1).amsgrad(true))},
      {"optim::AdamW", "", adamw(optim::AdamWOptions(0.1))},
      {"optim::AdamW", "with its options", adamw(optim::AdamWOptions(0.1).amsgrad(true))},
      {"optim::RMSprop", "", rmsprop(optim::RMSpropOptions(0.1))},
      {"optim::RMSprop", "with its options",
       rmsprop(optim::RMSpropOptions(0.1).weight_decay(0.1).momentum(0.9).centered(true))},
      {"optim::SGD", "", sgd(optim::SGDOptions(0.1))},
      {"optim::SGD", "with momentum", sgd(optim::SGDOptions(0.1).momentum(0.9).dampening(0.1))},
      {"optim::SGD", "by Nesterov",
       sgd(optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.1))},
      {"optim::SGD", "of sparse gradients",
       [](Trial& t) -> Outputs {
         auto module = t.build<nn::Embedding>(nn::EmbeddingOptions(10, 4).sparse(true));
         optim::SGD optimizer(module->parameters(), optim::SGDOptions(0.1));
         module->forward(t.below(10, {3, 4})).square().sum().backward();
         optimizer.step();
         return {};
       }},
      {"optim::LBFGS", "", lbfgs(optim::LBFGSOptions(0.1).max_iter(4))},
      {"optim::LBFGS", "searching lines",
       lbfgs(optim::LBFGSOptions(0.1).max_iter(4).line_search_fn("strong_wolfe"))},
      {"optim::StepLR", "", scheduled<optim::StepLR>(InSteps())},
      {"optim::ReduceLROnPlateauScheduler", "",
       scheduled<optim::ReduceLROnPlateauScheduler>(OnPlateau())},
  };
}

}  // namespace headroom::coverage
