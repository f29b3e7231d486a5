#include "headroom/train/step.h"

#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "nets.h"

namespace headroom::train {
namespace {

using torch::Tensor;

// A net without batch norm and dropout, on the CPU.
struct Plain {
  explicit Plain(c10::ScalarType type, const StepOptions& options = {}) {
    torch::manual_seed(1);
    net = torch::nn::Sequential(torch::nn::Linear(6, 32), torch::nn::GELU(),
                                torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})),
                                torch::nn::Linear(32, 4));
    net->to(type);
    optimizer = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
    step = std::make_unique<Step>(
        *net, *optimizer,
        Objective{
            .loss =
                [this](const Tensors& rows) {
                  return torch::nn::functional::cross_entropy(
                      net->forward(rows[0]), rows[1],
                      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(-100));
                },
            .terms =
                [](const Tensors& rows) { return (rows[1] != -100).sum().item<std::int64_t>(); }},
        options);
  }
  static Tensors batch(int seed, c10::ScalarType type) {
    torch::manual_seed(static_cast<std::uint64_t>(seed));
    Tensor labels = torch::randint(4, {13});
    labels.index_put_({torch::tensor({0, 1, 2, 7})},
                      torch::tensor(-100));  // parts with few, or none
    return {torch::randn({13, 6}).to(type), labels};
  }

  torch::nn::Sequential net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Step> step;
};

// The gradients of one step, added up in the order of its parts.
Tensors gradients(c10::ScalarType type, std::int64_t micro_batch) {
  Plain plain(type, {.plan = {.micro_batch = micro_batch}});
  Tensors sums(plain.net->parameters().size());
  for (std::size_t i = 0; i < sums.size(); ++i)
    plain.net->parameters()[i].register_hook([&sums, i](const Tensor& gradient) {
      sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
    });
  EXPECT_EQ(plain.step->run(Plain::batch(5, type)).plan.micro_batch, micro_batch);
  return sums;
}

double norm_of_all(const Tensors& tensors) {
  double squares = 0;
  for (const Tensor& tensor : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

TEST(Step, HasTheGradientsOfTheWholeBatchInPartsOfAnySize) {
  for (const auto& [type, bound] :
       {std::pair(torch::kFloat, 1e-6), std::pair(torch::kDouble, 1e-12)}) {
    const Tensors whole = gradients(type, 0);
    for (std::int64_t micro_batch = 1; micro_batch <= 13; ++micro_batch) {
      const Tensors parts = gradients(type, micro_batch);
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_LE((whole[i] - parts[i]).norm().item<double>(),
                  bound * std::max(whole[i].norm().item<double>(), 1e-3 * norm_of_all(whole)))
            << "micro-batch " << micro_batch << ", parameter " << i;
    }
  }
}

TEST(Step, LosesNothingInFiftyStepsOfAnyPlan) {
  Plain whole(torch::kDouble), parts(torch::kDouble);
  for (int i = 0; i < 50; ++i) {
    parts.step->set_plan({.micro_batch = 1 + i % 13});
    const Tensors batch = Plain::batch(i, torch::kDouble);
    EXPECT_NEAR(parts.step->run(batch).loss(), whole.step->run(batch).loss(), 1e-10);
  }
}

TEST(Step, FollowsItsSchedule) {
  Plain plain(torch::kFloat, {.schedule = optim::linear(4)});
  for (const double factor : {1.0, 0.75, 0.5}) {
    static_cast<void>(plain.step->run(Plain::batch(0, torch::kFloat)));
    EXPECT_DOUBLE_EQ(*plain.optimizer->learning_rate(), 1e-3 * factor);
  }
}

TEST(Step, SaysTheNormBeforeClipping) {
  Plain free(torch::kFloat), clipped(torch::kFloat, {.max_grad_norm = 1e-3});
  const Tensors batch = Plain::batch(0, torch::kFloat);
  EXPECT_TRUE(std::isnan(free.step->run(batch).gradient_norm()));
  EXPECT_GT(clipped.step->run(batch).gradient_norm(), 0.01);
}

TEST(Step, EndsAsNotBegunAfterAnotherFailure) {
  int calls = 0;
  Training run = convolutions(torch::kCPU);
  const auto loss = run.objective.loss;
  Step step(*run.module, *run.optimizer,
            {.loss =
                 [&](const Tensors& rows) {
                   Tensor right = loss(rows);
                   if (++calls == 3) throw std::runtime_error("a bug");
                   return right;
                 }},
            {.plan = {.micro_batch = 3}});
  static_cast<void>(Step(*run.module, *run.optimizer, run.objective).run(run.batch(0)));
  const Tensors before = everything(run);
  EXPECT_THROW(static_cast<void>(step.run(run.batch(1))), std::runtime_error);
  EXPECT_EQ(calls, 3);
  const Tensors after = everything(run);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(torch::equal(after[i], before[i])) << i;
  EXPECT_EQ(step.run(run.batch(1)).step, 1);
}

TEST(Step, GivesUpWithTheFailureItselfAsNotBegun) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Training run = transformer(box.device(0));
  static_cast<void>(run.step->run(run.batch(0)));
  const Tensors before = everything(run);
  {
    const sim::InjectionScope scope(box.card(0), sim::every(1));
    EXPECT_THROW(static_cast<void>(run.step->run(run.batch(1))), c10::OutOfMemoryError);
  }
  const Tensors after = everything(run);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(torch::equal(after[i], before[i])) << i;
  EXPECT_EQ(run.step->steps(), 1);
}

TEST(Step, ProtectsAnOptimizerThatNeedsMemory) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const auto trained = [&](std::uint64_t refused) {
    Training run = transformer(box.device(0));
    const auto loop =
        optim::make_adam(run.optimizer->parameters(), {.form = optim::OptimizerForm::loop});
    Step step(*run.module, *loop, run.objective);
    const std::uint64_t before = box.card(0).requests();
    {
      const sim::InjectionScope scope(box.card(0),
                                      refused == 0 ? sim::any_of({}) : sim::once(refused));
      static_cast<void>(step.run(run.batch(0)));
    }
    return std::pair(box.card(0).requests() - before, everything(run));
  };
  const auto [requests, right] = trained(0);
  for (const std::uint64_t from_the_end : {1, 2, 5, 20}) {
    const auto [unused, ours] = trained(requests - from_the_end);
    for (std::size_t i = 0; i < right.size(); ++i)
      EXPECT_TRUE(torch::equal(ours[i], right[i])) << i;
  }
}

TEST(Step, RefusesWhatIsNoBatch) {
  Training run = convolutions(torch::kCPU);
  EXPECT_THROW(static_cast<void>(run.step->run({})), UsageError);
  EXPECT_THROW(static_cast<void>(run.step->run({torch::ones({2, 3}), torch::ones({3})})),
               UsageError);
  EXPECT_THROW(static_cast<void>(run.step->run({torch::ones({0, 3})})), UsageError);
  EXPECT_THROW(static_cast<void>(run.step->run({torch::tensor(1)})), UsageError);
}

// ---- One run() at a time

// Steps ran through each other without an error.
TEST(Step, RefusesARunInsideOfItsLossAndFromAnotherThread) {
  Plain plain(torch::kFloat);
  const Tensors batch = Plain::batch(1, torch::kFloat);
  const auto complaint = [&](Step& step) -> std::string {
    try {
      static_cast<void>(step.run(batch));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  };
  std::string inside, elsewhere;
  Step step(*plain.net, *plain.optimizer, {.loss = [&](const Tensors& rows) {
    inside = complaint(*plain.step);
    std::thread([&] { elsewhere = complaint(step); }).join();
    return plain.net->forward(rows[0]).square().mean();
  }});
  EXPECT_EQ(step.run(batch).step, 1);
  EXPECT_THAT(inside, ::testing::HasSubstr("expected one step after the other"));
  EXPECT_THAT(elsewhere, ::testing::HasSubstr("expected one thread at a time"));
  EXPECT_EQ(step.run(batch).step, 2);
}

}  // namespace
}  // namespace headroom::train
