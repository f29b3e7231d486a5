// An out-of-memory in a step. Once one in the first step of an AdamW left states of which some
// tensors were missing, and every later step ended in an assertion of LibTorch's; SGD's momentum
// was added to a second time when the step was called again.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using Make = std::function<std::unique_ptr<Optimizer>(Tensors)>;

std::vector<State> states_of(const Optimizer& optimizer) {
  std::vector<State> all;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    all.push_back(optimizer.state(i));
    for (auto& [name, tensor] : all.back()) tensor = tensor.cpu().clone();
  }
  return all;
}

// Parameters after so many steps. The last step met a refusal of its `refused`-th request (0: none)
// and was repeated, after restoring the earlier state where that is required.
struct Outcome {
  Tensors parameters;
  bool was_refused = false, was_interrupted = false;
};

Outcome run(const Make& make, int steps, std::uint64_t refused) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const auto optimizer = make(start(at::kFloat, box.device(0)));
  for (int step = 0; step + 1 < steps; ++step) {
    set_gradients(optimizer->parameters(), step);
    optimizer->step();
  }
  set_gradients(optimizer->parameters(), steps - 1);
  const Tensors before = on_cpu(optimizer->parameters());
  const std::vector<State> states = states_of(*optimizer);
  Outcome outcome;
  {
    const sim::InjectionScope scope(box.card(0),
                                    refused == 0 ? sim::any_of({}) : sim::once(refused));
    try {
      optimizer->step();
    } catch (const c10::OutOfMemoryError&) {
      outcome.was_refused = true;
    }
  }
  outcome.was_interrupted = optimizer->interrupted();
  if (outcome.was_interrupted) {
    EXPECT_THROW(optimizer->step(), UsageError);
    const at::NoGradGuard no_grad;
    set_gradients(optimizer->parameters(), steps - 1);
    for (std::size_t i = 0; i < before.size(); ++i) {
      optimizer->parameters()[i].copy_(before[i]);
      optimizer->set_state(i, states[i]);
    }
    optimizer->restored();
  }
  if (outcome.was_refused) optimizer->step();
  outcome.parameters = on_cpu(optimizer->parameters());
  return outcome;
}

class OutOfMemoryInAStep : public testing::TestWithParam<Make> {};

TEST_P(OutOfMemoryInAStep, IsRepairedBitForBitByAnotherStepOrRefused) {
  for (const int steps : {1, 2}) {
    const Tensors right = run(GetParam(), steps, 0).parameters;
    std::uint64_t request = 1;
    for (;; ++request) {
      const Outcome with = run(GetParam(), steps, request);
      if (!with.was_refused) break;
      for (std::size_t i = 0; i < right.size(); ++i)
        EXPECT_TRUE(at::equal(with.parameters[i], right[i])) << "request " << request;
    }
    EXPECT_GT(request, steps == 1 ? 1U : 0U) << "no request was refused";
  }
}

// The step makes all state before any other request, so a refusal of the first request changes
// nothing.
TEST_P(OutOfMemoryInAStep, ChangesNothingWhileTheFirstMakesItsState) {
  EXPECT_FALSE(run(GetParam(), 1, 1).was_interrupted);
  EXPECT_FALSE(run(GetParam(), 1, 2).was_interrupted);
}

INSTANTIATE_TEST_SUITE_P(
    OfEachKindAndForm, OutOfMemoryInAStep,
    testing::Values(
        [](Tensors of) { return make_adamw(of, {.form = OptimizerForm::loop}); },
        [](Tensors of) { return make_adamw(of, {.form = OptimizerForm::foreach}); },
        [](Tensors of) { return make_adamw(of, {.form = OptimizerForm::fused}); },
        [](Tensors of) { return make_compact_adamw(of); },
        [](Tensors of) { return make_compact_adamw(of, {.bits = 4}); },
        [](Tensors of) { return make_adam(of, {.weight_decay = 0.1, .amsgrad = true}); },
        [](Tensors of) {
          return make_sgd(of, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
        },
        [](Tensors of) {
          return make_sgd(of, {.momentum = 0.9, .weight_decay = 0.1, .form = OptimizerForm::loop});
        },
        [](Tensors of) { return make_sgd(of, {.momentum = 0.9, .form = OptimizerForm::fused}); },
        [](Tensors of) { return make_rmsprop(of, {.weight_decay = 0.1, .momentum = 0.9}); },
        [](Tensors of) {
          return make_rmsprop(of, {.centered = true, .form = OptimizerForm::loop});
        },
        [](Tensors of) { return make_adafactor(of, {}); },
        [](Tensors of) { return make_adafactor(of, {.form = OptimizerForm::foreach}); },
        [](Tensors of) { return make_adafactor_hf(of, {.beta1 = 0.9}); }));

// A scaler's calls, each repeated after a refusal. Once one in the first scale() left a factor
// without its count of good steps.
TEST(OutOfMemoryInALossScaler, IsRepairedByRepeatingTheCall) {
  const auto step = [](std::uint64_t refused) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
    const auto optimizer =
        make_adamw(start(at::kFloat, box.device(0)), {.form = OptimizerForm::fused});
    const at::Tensor loss = at::ones({}).to(box.device(0));
    set_gradients(optimizer->parameters(), 0);
    LossScaler scaler({.first = 8});
    const sim::InjectionScope scope(box.card(0),
                                    refused == 0 ? sim::any_of({}) : sim::once(refused));
    bool was_refused = false;
    const auto twice = [&](const auto& call) {
      try {
        call();
      } catch (const c10::OutOfMemoryError&) {
        was_refused = true;
        call();
      }
    };
    twice([&] { static_cast<void>(scaler.scale(loss)); });
    twice([&] { scaler.unscale(*optimizer); });
    twice([&] { scaler.step(*optimizer); });
    twice([&] { scaler.update(); });
    EXPECT_EQ(scaler.good_steps(), 1);
    return std::pair(on_cpu(optimizer->parameters()), was_refused);
  };
  const Tensors right = step(0).first;
  std::uint64_t request = 1;
  for (;; ++request) {
    const auto [parameters, was_refused] = step(request);
    if (!was_refused) break;
    for (std::size_t i = 0; i < right.size(); ++i)
      EXPECT_TRUE(at::equal(parameters[i], right[i])) << "request " << request;
  }
  EXPECT_GT(request, 6U);
}

// Every form, with copies: a step that threw has changed nothing.
TEST(Optimizer, ProtectedStepsChangeNothingWhenTheyThrow) {
  const std::vector<Make> makes{
      [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::loop}); },
      [](const Tensors& of) { return make_adam(of, {.weight_decay = 0.1, .amsgrad = true}); },
      [](const Tensors& of) {
        return make_sgd(of, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
      },
      [](const Tensors& of) { return make_adafactor(of, {}); },
      [](const Tensors& of) { return make_adafactor(of, {.form = OptimizerForm::foreach}); },
      [](const Tensors& of) { return make_adafactor_hf(of, {.beta1 = 0.9}); }};
  for (const Make& make : makes)
    for (const int earlier : {0, 1}) {
      const auto after = [&](std::uint64_t refused, bool& was_refused) {
        const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
        const auto optimizer = make(start(at::kFloat, box.device(0)));
        optimizer->protect();
        for (int step = 0; step < earlier; ++step) {
          set_gradients(optimizer->parameters(), step);
          optimizer->step();
        }
        set_gradients(optimizer->parameters(), earlier);
        const Tensors before = on_cpu(optimizer->parameters());
        was_refused = false;
        try {
          const sim::InjectionScope scope(box.card(0),
                                          refused == 0 ? sim::any_of({}) : sim::once(refused));
          optimizer->step();
        } catch (const c10::OutOfMemoryError&) {
          was_refused = true;
        }
        if (was_refused) {
          EXPECT_FALSE(optimizer->interrupted());
          expect_near(on_cpu(optimizer->parameters()), before, 0);
          optimizer->step();
        }
        return on_cpu(optimizer->parameters());
      };
      bool was_refused = false;
      const Tensors right = after(0, was_refused);
      std::uint64_t request = 1;
      for (;; ++request) {
        const Tensors ours = after(request, was_refused);
        if (!was_refused) break;
        expect_near(ours, right, 0);
      }
      EXPECT_GT(request, 1U);
    }
}

}  // namespace
}  // namespace headroom::optim
