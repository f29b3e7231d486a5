#include "headroom/optim/optimizer.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using model::Optimizer::adamw;

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

TEST(Optimizer, LeavesParametersWithoutAGradientAlone) {
  const std::vector<at::Tensor> parameters = start(at::kFloat);
  const at::Tensor before = parameters[1].detach().clone();
  const auto optimizer = make_adamw(parameters);
  set_gradients(parameters, 0);
  parameters[1].mutable_grad().reset();
  optimizer->step();
  EXPECT_TRUE(at::equal(parameters[1], before));
  EXPECT_TRUE(optimizer->state(1).empty());
  EXPECT_FALSE(optimizer->state(0).empty());
}

TEST(Optimizer, StepsWithoutAnyGradientDoNothing) {
  for (const OptimizerForm form :
       {OptimizerForm::loop, OptimizerForm::foreach, OptimizerForm::fused})
    for (const auto kind : {adamw, model::Optimizer::sgd_momentum, model::Optimizer::adafactor,
                            model::Optimizer::adafactor_hf, model::Optimizer::none}) {
      const auto optimizer = make_optimizer(kind, form, start(at::kFloat));
      optimizer->step();
      EXPECT_TRUE(optimizer->state(0).empty());
    }
}

TEST(Optimizer, ZeroGradFreesOrFills) {
  for (const OptimizerForm form : {OptimizerForm::loop, OptimizerForm::foreach}) {
    const auto optimizer = make_optimizer(adamw, form, start(at::kFloat));
    set_gradients(optimizer->parameters(), 0);
    const at::Tensor gradient = optimizer->parameters()[0].grad();
    optimizer->zero_grad(false);
    EXPECT_TRUE(gradient.is_same(optimizer->parameters()[0].grad()));
    EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
    optimizer->zero_grad();
    EXPECT_FALSE(optimizer->parameters()[0].grad().defined());
  }
}

// A run that is stopped after three steps and taken up again ends where the other one ends.
class SavedState : public testing::TestWithParam<std::string> {};

TEST_P(SavedState, ContinuesBitForBit) {
  const nlohmann::json& one = trained_case(GetParam());
  const at::ScalarType type = one.at("dtype") == "bfloat16" ? at::kBFloat16 : at::kFloat;
  auto optimizer = optimizer_of(one, start(type));
  for (int step = 0; step < 5; ++step) {
    if (step == 3) {
      std::vector<at::Tensor> parameters;
      for (const at::Tensor& x : optimizer->parameters())
        parameters.push_back(x.detach().clone().requires_grad_());
      auto next = optimizer_of(one, parameters);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        State copy;
        for (const auto& [name, tensor] : optimizer->state(i)) copy[name] = tensor.clone();
        next->set_state(i, copy);
      }
      optimizer = std::move(next);
    }
    set_gradients(optimizer->parameters(), step);
    optimizer->step();
  }
  const auto whole = trained(one);
  for (std::size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(same(optimizer->parameters()[i], whole->parameters()[i]));
    for (const auto& [name, tensor] : whole->state(i))
      EXPECT_TRUE(same(tensor, optimizer->state(i).at(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Optim, SavedState,
                         testing::Values("sgd_momentum_fused", "adam_amsgrad_foreach",
                                         "adamw_bfloat16_fused", "rmsprop_centered_foreach",
                                         "adafactor_loop", "adafactor_hf_bfloat16_loop",
                                         "adafactor_hf_warmup_loop"),
                         [](const auto& test) { return test.param; });

TEST(Optimizer, AWeightOfSparseGradientsNeedsSgd) {
  const auto table = [](OptimizerForm form) {
    std::vector<at::Tensor> parameters{at::ones({10, 3}).requires_grad_()};
    at::embedding(parameters[0], at::tensor({1, 4, 1}, at::kLong), -1, false, true)
        .sum()
        .backward();
    return std::pair(parameters, form);
  };
  for (const OptimizerForm form : {OptimizerForm::loop, OptimizerForm::foreach}) {
    const auto [parameters, its_form] = table(form);
    make_sgd(parameters, {.learning_rate = 0.5, .form = its_form})->step();
    EXPECT_EQ(parameters[0][1][0].item<float>(), 0);
    EXPECT_EQ(parameters[0][0][0].item<float>(), 1);
  }
  const auto [parameters, form] = table(OptimizerForm::fused);
  EXPECT_THROW(make_sgd(parameters, {.form = form})->step(), UsageError);
  EXPECT_THROW(make_adamw(parameters)->step(), UsageError);
  EXPECT_THROW(make_rmsprop(parameters)->step(), UsageError);
  EXPECT_THROW(make_adafactor(parameters)->step(), UsageError);
  EXPECT_THROW(make_adafactor_hf(parameters)->step(), UsageError);
}

TEST(Optimizer, RefusesWhatPyTorchRefuses) {
  EXPECT_THROW((void)make_sgd({}, {.learning_rate = -1}), UsageError);
  EXPECT_THROW((void)make_sgd({}, {.learning_rate = std::nan("")}), UsageError);
  EXPECT_THROW((void)make_sgd({}, {.nesterov = true}), UsageError);
  EXPECT_THROW((void)make_sgd({}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
               UsageError);
  EXPECT_THROW((void)make_adam({}, {.beta1 = 1}), UsageError);
  EXPECT_THROW((void)make_adamw({}, {.weight_decay = -0.1}), UsageError);
  EXPECT_THROW((void)make_rmsprop({}, {.alpha = -0.1}), UsageError);
  EXPECT_THROW((void)make_rmsprop({}, {.momentum = -0.1}), UsageError);
  EXPECT_THROW((void)make_rmsprop({}, {.form = OptimizerForm::fused}), UsageError);
  EXPECT_THROW((void)make_adafactor({}, {.beta2_decay = 0.1}), UsageError);
  EXPECT_THROW((void)make_adafactor({}, {.clip = 0.5}), UsageError);
  EXPECT_THROW((void)make_adafactor({}, {.form = OptimizerForm::fused}), UsageError);
  EXPECT_THROW((void)make_adafactor_hf({}, {.learning_rate = 0.1}), UsageError);
  EXPECT_THROW((void)make_adafactor_hf({}, {.relative_step = false}), UsageError);
}

TEST(Optimizer, NamesTheOptionItRefuses) {
  try {
    (void)make_adamw({}, {.beta2 = 1.5});
    FAIL() << "it was taken";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("[AdamW] expected a beta2 from 0 to below 1"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1.5"));
  }
}

// Weights of two types: each foreach call takes one of them.
TEST(Optimizer, TakesTypesApart) {
  for (const OptimizerForm form :
       {OptimizerForm::loop, OptimizerForm::foreach, OptimizerForm::fused}) {
    std::vector<at::Tensor> parameters = start(at::kFloat);
    for (const at::Tensor& half : start(at::kBFloat16)) parameters.push_back(half);
    const auto optimizer = make_optimizer(adamw, form, parameters);
    for (int step = 0; step < 5; ++step) {
      set_gradients({parameters.begin(), parameters.begin() + 4}, step);
      set_gradients({parameters.begin() + 4, parameters.end()}, step);
      optimizer->step();
    }
    for (std::size_t i = 0; i < 4; ++i)
      expect_equal(parameters[i], trained_case("adamw_loop").at("parameters").at(i));
  }
}

TEST(Optimizer, TakesOnlyStatesOfItsParameters) {
  using States = std::vector<State>;
  const at::Tensor parameter = torch::ones({8, 8}).requires_grad_();
  const at::Tensor number = torch::tensor(3.0F), moment = torch::ones({8, 8});
  for (const OptimizerForm form : {OptimizerForm::loop, OptimizerForm::fused}) {
    const auto optimizer = make_adamw({parameter}, {.form = form});
    for (const State& wrong :
         States{{{"step", number}, {"exp_avg", torch::zeros({1})}, {"exp_avg_sq", moment}},
                {{"step", number}, {"exp_avg", moment}},
                {{"step", number}, {"exp_avg", moment}, {"exp_avg_sq", moment.to(at::kDouble)}},
                {{"step", moment}, {"exp_avg", moment}, {"exp_avg_sq", moment}},
                {{"step", number}, {"exp_avg", moment}, {"exp_avg_sq", at::Tensor()}}})
      EXPECT_THROW(optimizer->set_state(0, wrong), UsageError);
    EXPECT_TRUE(optimizer->state(0).empty());
    optimizer->set_state(0, {{"step", number}, {"exp_avg", moment}, {"exp_avg_sq", moment}});
    EXPECT_EQ(optimizer->state(0).size(), 3U);
  }
}

TEST(Optimizer, RefusesWhatItHasNot) {
  const at::Tensor leaf = torch::ones({2}).requires_grad_();
  EXPECT_THROW((void)make_adamw({leaf * 1}), UsageError);
  EXPECT_THROW((void)make_adamw({at::Tensor()}), UsageError);
  const auto optimizer = make_adamw({leaf});
  EXPECT_THROW(optimizer->set_learning_rate(1, 1), UsageError);
  EXPECT_THROW((void)optimizer->learning_rate(1), UsageError);
  EXPECT_THROW((void)optimizer->state(1), UsageError);
  EXPECT_THROW(optimizer->set_state(1, {}), UsageError);
}

}  // namespace
}  // namespace headroom::optim
