// reserve() and commit(): an optimizer that cannot fail once gradients are there.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "headroom/base/error.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/scope.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using MakeKind = std::function<std::unique_ptr<Optimizer>(const Tensors&)>;
struct Kind {
  const char* name;
  MakeKind make;
  double tolerance = 0;  // of commit() beside step()
};

// Large enough for CUDA's sums to take memory.
Tensors large(at::ScalarType type, c10::Device device) {
  torch::manual_seed(1);
  Tensors all;
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{3000, 130}, {1500}, {7, 5, 3, 3}, {}, {5000, 2}})
    all.push_back(torch::randn(sizes, at::kFloat).to(device, type).requires_grad_());
  return all;
}

void give_gradients(const Tensors& parameters, int step) {
  torch::manual_seed(100 + step);
  for (at::Tensor parameter : parameters)
    parameter.mutable_grad() =
        torch::randn(parameter.sizes(), at::kFloat).to(parameter.device(), parameter.scalar_type());
}

const std::vector<Kind> kCommitting{
    {"adamw", [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::fused}); }},
    {"adam",
     [](const Tensors& of) {
       return make_adam(of, {.weight_decay = 0.1, .amsgrad = true, .form = OptimizerForm::fused});
     }},
    {"sgd", [](const Tensors& of) { return make_sgd(of, {.form = OptimizerForm::fused}); }},
    {"momentum",
     [](const Tensors& of) {
       return make_sgd(
           of,
           {.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1, .form = OptimizerForm::fused});
     }},
    {"adamw_stochastic",
     [](const Tensors& of) {
       return make_adamw(
           of, {.form = OptimizerForm::fused, .rounding = Rounding::stochastic, .seed = 5});
     }},
    {"momentum_stochastic",
     [](const Tensors& of) {
       return make_sgd(of, {.momentum = 0.9,
                            .dampening = 0.1,
                            .form = OptimizerForm::fused,
                            .rounding = Rounding::stochastic});
     }},
    {"adamw8bit", [](const Tensors& of) { return make_compact_adamw(of); }},
    {"adamw4bit",
     [](const Tensors& of) {
       return make_compact_adamw(of, {.bits = 4, .rounding = Rounding::stochastic, .seed = 5});
     }},
    {"rmsprop", [](const Tensors& of) { return make_rmsprop(of, {.form = OptimizerForm::loop}); }},
    {"rmsprop_centered",
     [](const Tensors& of) {
       return make_rmsprop(
           of,
           {.weight_decay = 0.1, .momentum = 0.9, .centered = true, .form = OptimizerForm::loop});
     }},
    {"adafactor", [](const Tensors& of) { return make_adafactor(of, {.weight_decay = 0.1}); },
     1e-5},
};

class Commit : public testing::TestWithParam<Kind> {};

TEST_P(Commit, EqualsStepsThoughEveryRequestIsRefused) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
    const auto plain = GetParam().make(large(type, box.device(0)));
    const auto committing = GetParam().make(large(type, box.device(0)));
    committing->reserve();
    for (int step = 0; step < 4; ++step) {
      give_gradients(plain->parameters(), step);
      plain->step();
      give_gradients(committing->parameters(), step);
      const sim::InjectionScope refused(box.card(0), sim::every(1));
      committing->commit();
    }
    const bool rounds = type == at::kBFloat16 && GetParam().tolerance != 0;
    expect_near(on_cpu(committing->parameters()), on_cpu(plain->parameters()),
                rounds ? 4e-3 : GetParam().tolerance);
  }
}

TEST_P(Commit, TakesNoMemoryOfTheHostWorthNaming) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto optimizer = GetParam().make(large(type, at::kCPU));
    optimizer->reserve();
    give_gradients(optimizer->parameters(), 0);
    const memory::CountCpuMemory counting;
    memory::GpuMemoryScope scope(at::kCPU);
    optimizer->commit();
    EXPECT_LE(scope.use().peak.count, 64 * 1024);
  }
}

TEST_P(Commit, NeedsAllThatReserveMakes) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const auto optimizer = GetParam().make(large(at::kFloat, box.device(0)));
  give_gradients(optimizer->parameters(), 0);
  {
    const sim::InjectionScope scope(box.card(0), sim::once(2));
    EXPECT_THROW(optimizer->reserve(), c10::OutOfMemoryError);
  }
  for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
    EXPECT_TRUE(optimizer->state(i).empty());
  EXPECT_THROW(optimizer->commit(), UsageError);
  optimizer->reserve();
  optimizer->commit();
}

TEST_P(Commit, GoesOnAfterStepsAndBeforeThem) {
  const auto plain = GetParam().make(large(at::kFloat, at::kCPU));
  const auto mixed = GetParam().make(large(at::kFloat, at::kCPU));
  for (int step = 0; step < 4; ++step) {
    for (const auto* one : {&plain, &mixed}) give_gradients((*one)->parameters(), step);
    plain->step();
    if (step == 1) mixed->reserve();
    if (step == 1 || step == 3)
      mixed->commit();
    else
      mixed->step();
  }
  expect_near(on_cpu(mixed->parameters()), on_cpu(plain->parameters()), GetParam().tolerance);
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, Commit, testing::ValuesIn(kCommitting),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(Optimizer, CommitsOnlyInFormsThatCan) {
  const auto loop = make_adamw(start(at::kFloat), {.form = OptimizerForm::loop});
  EXPECT_FALSE(loop->can_commit());
  EXPECT_THROW(loop->commit(), UsageError);
  const auto fused = make_adamw(start(at::kFloat), {.form = OptimizerForm::fused});
  set_gradients(fused->parameters(), 0);
  EXPECT_THROW(fused->commit(), UsageError);  // before reserve()
  fused->reserve();
  fused->commit();
  EXPECT_TRUE(make_rmsprop(start(at::kFloat))->can_commit());
  const auto adafactor = make_adafactor(start(at::kFloat));
  adafactor->reserve();
  EXPECT_THROW(adafactor->commit({{}, at::zeros({})}), UsageError);
  EXPECT_THROW(adafactor->commit({at::ones({}), {}}), UsageError);
}

// A parameter that trains later, and a state that was taken away.
TEST_P(Commit, RefusesAParameterThatWasNotReserved) {
  Tensors parameters = large(at::kFloat, at::kCPU);
  parameters[1].set_requires_grad(false);
  const auto optimizer = GetParam().make(parameters);
  optimizer->reserve();
  parameters[1].set_requires_grad(true);
  give_gradients(parameters, 0);
  const Tensors before = on_cpu(parameters);
  EXPECT_THROW(optimizer->commit(), UsageError);
  optimizer->reserve();
  if (!optimizer->state(0).empty()) {
    optimizer->set_state(0, {});
    EXPECT_THROW(optimizer->commit(), UsageError);
    optimizer->reserve();
  }
  expect_near(on_cpu(parameters), before, 0);
  optimizer->commit();
}

// A reserved buffer becomes the first gradient, in each form.
TEST(Optimizer, ReservesMomentumThatStepsWouldMake) {
  for (const OptimizerForm form :
       {OptimizerForm::loop, OptimizerForm::foreach, OptimizerForm::fused}) {
    const auto make = [&] {
      return make_sgd(start(at::kFloat), {.momentum = 0.9, .dampening = 0.3, .form = form});
    };
    const auto plain = make(), reserved = make();
    reserved->reserve();
    for (int step = 0; step < 3; ++step)
      for (const auto* one : {&plain, &reserved}) {
        set_gradients((*one)->parameters(), step);
        (*one)->step();
      }
    expect_near(on_cpu(reserved->parameters()), on_cpu(plain->parameters()), 0);
  }
}

// A parameter that had no gradient in the first step: PyTorch's fused form refuses it.
TEST(Optimizer, FusedMomentumTakesUpAParameterLater) {
  const auto make = [](OptimizerForm form) {
    return make_sgd(start(at::kFloat), {.momentum = 0.9, .form = form});
  };
  const auto fused = make(OptimizerForm::fused), loop = make(OptimizerForm::loop);
  for (int step = 0; step < 3; ++step)
    for (const auto* one : {&fused, &loop}) {
      set_gradients((*one)->parameters(), step);
      if (step == 0) at::Tensor((*one)->parameters()[1]).mutable_grad().reset();
      (*one)->step();
    }
  expect_near(on_cpu(fused->parameters()), on_cpu(loop->parameters()), 1e-6);
}

}  // namespace
}  // namespace headroom::optim
