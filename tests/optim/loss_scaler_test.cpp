#include "headroom/optim/loss_scaler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "headroom/base/error.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

// As `scaled` of tests/peers/optimizers.py: the gradients of the third step are infinite.
void scaled_step(LossScaler& scaler, Optimizer& optimizer, int step, bool unscale_first) {
  const auto factor = scaler.scale(at::ones({})).item<float>();
  set_gradients(optimizer.parameters(), step);
  for (const at::Tensor& parameter : optimizer.parameters()) parameter.mutable_grad().mul_(factor);
  if (step == 2)
    optimizer.parameters()[1].mutable_grad()[3] = std::numeric_limits<float>::infinity();
  if (unscale_first) scaler.unscale(optimizer);
  scaler.step(optimizer);
  scaler.update();
}

TEST(LossScaler, GivesPythonsFactorsAndParameters) {
  ASSERT_EQ(figures().at("scaled").size(), 4U);
  for (const nlohmann::json& one : figures().at("scaled")) {
    SCOPED_TRACE(one.at("form").get<std::string>());
    const auto form = model::choice<OptimizerForm>(one.at("form").get<std::string>());
    const auto optimizer =
        make_sgd(start(at::kFloat), {.learning_rate = 0.1, .momentum = 0.9, .form = form});
    LossScaler scaler({.first = 8, .growth_interval = 2});
    std::vector<double> factors;
    for (int step = 0; step < 6; ++step) {
      scaled_step(scaler, *optimizer, step, one.at("unscale_first"));
      factors.push_back(scaler.factor());
    }
    EXPECT_EQ(factors, one.at("factors").get<std::vector<double>>());
    for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
      expect_equal(optimizer->parameters()[i], one.at("parameters").at(i));
  }
}

// A fused Adam counts its steps on the card: one that was left out must not count.
TEST(LossScaler, AStepLeftOutDoesNotCount) {
  for (const OptimizerForm form : {OptimizerForm::loop, OptimizerForm::fused}) {
    const auto optimizer = make_adamw(start(at::kFloat), {.form = form});
    LossScaler scaler({.first = 8});
    for (int step = 0; step < 4; ++step) scaled_step(scaler, *optimizer, step, false);
    EXPECT_EQ(optimizer->state(0).at("step").item<double>(), 3);
    EXPECT_EQ(scaler.good_steps(), 1);
  }
}

TEST(LossScaler, ContinuesFromARestoredState) {
  const auto optimizer = make_sgd(start(at::kFloat));
  LossScaler scaler;
  EXPECT_EQ(scaler.factor(), 65536);
  scaler.restore(32, 1999);
  scaled_step(scaler, *optimizer, 0, false);
  EXPECT_EQ(scaler.factor(), 64);
  EXPECT_EQ(scaler.good_steps(), 0);
}

TEST(LossScaler, RefusesCallsOutOfOrder) {
  const auto optimizer = make_sgd(start(at::kFloat), {.form = OptimizerForm::loop});
  LossScaler scaler;
  set_gradients(optimizer->parameters(), 0);
  EXPECT_THROW(scaler.step(*optimizer), UsageError);
  EXPECT_THROW(scaler.update(), UsageError);
  (void)scaler.scale(at::ones({}));
  EXPECT_THROW(scaler.update(), UsageError);
  scaler.unscale(*optimizer);
  EXPECT_THROW(scaler.unscale(*optimizer), UsageError);
  scaler.step(*optimizer);
  EXPECT_THROW(scaler.step(*optimizer), UsageError);
  EXPECT_THROW(scaler.unscale(*optimizer), UsageError);
  scaler.update();
  EXPECT_NO_THROW(scaler.unscale(*optimizer));
}

TEST(LossScaler, RefusesGradientsInHalfPrecision) {
  const auto optimizer = make_sgd(start(at::kHalf), {.form = OptimizerForm::loop});
  set_gradients(optimizer->parameters(), 0);
  LossScaler scaler;
  (void)scaler.scale(at::ones({}));
  EXPECT_THROW(scaler.step(*optimizer), UsageError);
}

TEST(LossScaler, RefusesFactorsOfTheWrongSide) {
  EXPECT_THROW(LossScaler({.growth = 1}), UsageError);
  EXPECT_THROW(LossScaler({.backoff = 1}), UsageError);
  EXPECT_THROW(LossScaler({.backoff = 0}), UsageError);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), UsageError);
  for (const double factor : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(LossScaler({.first = factor}), UsageError);
    EXPECT_THROW(LossScaler().restore(factor, 0), UsageError);
  }
  EXPECT_THROW(LossScaler().restore(1, -1), UsageError);
}

}  // namespace
}  // namespace headroom::optim
