// A scaled step that cannot run out of memory after its backward pass.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>

#include "headroom/base/error.h"
#include "headroom/optim/loss_scaler.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

TEST(LossScaler, CommitsWhenEveryRequestIsRefused) {
  for (const bool overflows : {false, true}) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
    const auto make = [&] {
      return make_adamw(start(at::kFloat, box.device(0)), {.form = OptimizerForm::fused});
    };
    const auto plain = make(), committing = make();
    LossScaler scaler({.first = 8}), other({.first = 8});
    other.reserve(*committing);
    committing->reserve();
    const at::Tensor loss = at::ones({}).to(box.device(0));
    for (int step = 0; step < 3; ++step) {
      for (const auto* one : {&plain, &committing}) {
        set_gradients((*one)->parameters(), step);
        for (const at::Tensor& parameter : (*one)->parameters()) parameter.grad().mul_(8);
        if (overflows && step == 1) (*one)->parameters()[0].grad().fill_(INFINITY);
      }
      static_cast<void>(scaler.scale(loss));
      static_cast<void>(other.scale(loss));
      scaler.unscale(*plain);
      scaler.step(*plain);
      scaler.update();
      const sim::InjectionScope refused(box.card(0), sim::every(1));
      other.commit(*committing);
      other.update();
    }
    expect_near(on_cpu(committing->parameters()), on_cpu(plain->parameters()), 0);
    EXPECT_EQ(other.factor(), scaler.factor());
    EXPECT_EQ(other.factor(), overflows ? 4 : 8);
    EXPECT_EQ(other.good_steps(), scaler.good_steps());
  }
}

TEST(LossScaler, ForgetsAnAbandonedStep) {
  const auto optimizer = make_adamw(start(at::kFloat), {.form = OptimizerForm::fused});
  LossScaler scaler({.first = 8});
  EXPECT_THROW(scaler.commit(*optimizer), UsageError);  // no loss was scaled
  static_cast<void>(scaler.scale(at::ones({})));
  EXPECT_THROW(scaler.commit(*optimizer), UsageError);  // nothing was reserved
  scaler.reserve(*optimizer);
  optimizer->reserve();
  set_gradients(optimizer->parameters(), 0);
  scaler.unscale(*optimizer);
  EXPECT_THROW(scaler.unscale(*optimizer), UsageError);
  scaler.abandon();
  set_gradients(optimizer->parameters(), 0);
  scaler.unscale(*optimizer);
  scaler.commit(*optimizer);
  EXPECT_THROW(scaler.commit(*optimizer), UsageError);
  scaler.update();
  EXPECT_EQ(scaler.good_steps(), 1);
}

// Two devices, a first that holds the factor.
TEST(LossScaler, CommitsAcrossDevices) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  Tensors parameters = start(at::kFloat, box.device(0));
  for (const at::Tensor& one : start(at::kFloat, box.device(1))) parameters.push_back(one);
  const auto optimizer = make_sgd(parameters, {.form = OptimizerForm::fused});
  LossScaler scaler({.first = 8});
  optimizer->reserve();
  scaler.reserve(*optimizer);
  static_cast<void>(scaler.scale(at::ones({}).to(box.device(1))));
  set_gradients(parameters, 0);
  const Tensors before = on_cpu(parameters);
  parameters.back().grad().fill_(NAN);
  {
    const sim::InjectionScope first(box.card(0), sim::every(1));
    const sim::InjectionScope second(box.card(1), sim::every(1));
    scaler.commit(*optimizer);
    scaler.update();
  }
  expect_near(on_cpu(parameters), before, 0);  // skipped on both
  EXPECT_EQ(scaler.factor(), 4);
}

TEST(LossScaler, CommitsOnlyWhatItReservedBefore) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  Tensors parameters = start(at::kFloat, box.device(0));
  parameters.push_back(torch::ones({4}).to(box.device(1)));
  const auto optimizer = make_sgd(parameters, {.form = OptimizerForm::fused});
  LossScaler scaler({.first = 8});
  optimizer->reserve();
  static_cast<void>(scaler.scale(at::ones({}).to(box.device(0))));
  set_gradients(parameters, 0);
  scaler.unscale(*optimizer);
  scaler.reserve(*optimizer);
  EXPECT_THROW(scaler.commit(*optimizer), UsageError);
  scaler.abandon();
  parameters.back().set_requires_grad(true);  // on a card that was not reserved
  parameters.back().mutable_grad() = torch::ones({4}).to(box.device(1));
  const at::Tensor gradient = parameters[0].grad().clone();
  EXPECT_THROW(scaler.unscale(*optimizer), UsageError);
  EXPECT_TRUE(at::equal(parameters[0].grad(), gradient));
  scaler.reserve(*optimizer);
  optimizer->reserve();
  scaler.commit(*optimizer);
}

}  // namespace
}  // namespace headroom::optim
