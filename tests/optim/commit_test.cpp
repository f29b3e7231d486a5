// reserve(), commit(), protect() and groups: an optimizer that cannot fail once gradients are
// there.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "headroom/base/error.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/scope.h"
#include "headroom/optim/loss_scaler.h"
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

Tensors on_cpu(const Tensors& all) {
  Tensors copies;
  for (const at::Tensor& one : all) copies.push_back(one.detach().to(at::kCPU).clone());
  return copies;
}

void expect_near(const Tensors& ours, const Tensors& theirs, double tolerance) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (tolerance == 0)
      EXPECT_TRUE(at::equal(ours[i], theirs[i])) << "parameter " << i;
    else
      EXPECT_LE((ours[i] - theirs[i]).to(at::kFloat).norm().item<double>(),
                tolerance * theirs[i].to(at::kFloat).norm().item<double>())
          << "parameter " << i;
  }
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

TEST(Optimizer, GroupsHaveOptionsOfTheirOwn) {
  for (const OptimizerForm form :
       {OptimizerForm::loop, OptimizerForm::foreach, OptimizerForm::fused}) {
    const AdamWOptions first{.weight_decay = 0.3, .form = form};
    const AdamWOptions second{.learning_rate = 0.1, .beta1 = 0.5, .amsgrad = true, .form = form};
    const auto halves = [](const Tensors& all) {
      return std::pair(Tensors(all.begin(), all.begin() + 1), Tensors(all.begin() + 1, all.end()));
    };
    const Tensors grouped = start(at::kFloat), apart = start(at::kFloat);
    const auto [a, b] = halves(grouped);
    const auto together = make_adamw({{a, first}, {b, second}});
    const auto one = make_adamw(halves(apart).first, first);
    const auto other = make_adamw(halves(apart).second, second);
    EXPECT_EQ(together->groups(), 2U);
    EXPECT_EQ(together->learning_rate(1), 0.1);
    for (int step = 0; step < 3; ++step) {
      if (step == 2) {
        together->set_learning_rate(0.2, 1);
        other->set_learning_rate(0.2);
      }
      set_gradients(grouped, step);
      set_gradients(apart, step);
      together->step();
      one->step();
      other->step();
    }
    expect_near(on_cpu(grouped), on_cpu(apart), 0);
    EXPECT_TRUE(together->state(1).contains("max_exp_avg_sq"));
    EXPECT_FALSE(together->state(0).contains("max_exp_avg_sq"));
  }
}

TEST(Optimizer, RefusesGroupsThatMakeNoSense) {
  const Tensors all = start(at::kFloat);
  EXPECT_THROW((void)make_adamw({{all, {}}, {{all[0]}, {}}}), UsageError);
  EXPECT_THROW((void)make_sgd({{{all[0]}, {.form = OptimizerForm::loop}}, {{all[1]}, {}}}),
               UsageError);
  EXPECT_THROW((void)make_adam(std::vector<Group<AdamOptions>>()), UsageError);
  EXPECT_THROW(make_adamw(all)->set_learning_rate(-1), UsageError);
  EXPECT_THROW(make_adafactor_hf(all)->set_learning_rate(1), UsageError);  // relative_step
}

// Every form, with copies: a step that threw has changed nothing.
TEST(Optimizer, ProtectedStepsChangeNothingWhenTheyThrow) {
  const std::vector<MakeKind> makes{
      [](const Tensors& of) { return make_adamw(of, {.form = OptimizerForm::loop}); },
      [](const Tensors& of) { return make_adam(of, {.weight_decay = 0.1, .amsgrad = true}); },
      [](const Tensors& of) {
        return make_sgd(of, {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
      },
      [](const Tensors& of) { return make_adafactor(of, {}); },
      [](const Tensors& of) { return make_adafactor(of, {.form = OptimizerForm::foreach}); },
      [](const Tensors& of) { return make_adafactor_hf(of, {.beta1 = 0.9}); }};
  for (const MakeKind& make : makes)
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

// ---- The loss scaler

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
