// Five steps of every optimizer give the numbers that Python's give.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "headroom/sim/simulate.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using nlohmann::json;

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const json& one : figures().at("trained")) all.push_back(one.at("name"));
  return all;
}

class Numbers : public testing::TestWithParam<std::string> {};

void expect_as_stored(const json& one, const Optimizer& optimizer) {
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    SCOPED_TRACE("parameter " + std::to_string(i));
    expect_equal(optimizer.parameters()[i], one.at("parameters").at(i));
    const json& theirs = one.at("states").at(i);
    EXPECT_EQ(optimizer.state(i).size(), theirs.size());
    for (const auto& [name, tensor] : optimizer.state(i)) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(theirs.contains(name));
      expect_equal(tensor, theirs.at(name));
    }
  }
}

TEST_P(Numbers, OfParametersAndStatesArePythons) {
  const json& one = trained_case(GetParam());
  expect_as_stored(one, *trained(one));
}

TEST_P(Numbers, AreTheSameOnASimulatedCard) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const json& one = trained_case(GetParam());
  expect_as_stored(one, *trained(one, box.device(0)));
}

INSTANTIATE_TEST_SUITE_P(Optim, Numbers, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

bool has_no_fused_form(const std::string& name) {
  return name.starts_with("adafactor") || name.starts_with("rmsprop");
}

class Forms : public testing::TestWithParam<std::string> {};

// To 1e-6 of values around 1: they round in another order.
TEST_P(Forms, ComputeTheSame) {
  const auto loop = trained(trained_case(GetParam() + "_loop"));
  for (const std::string form : {"foreach", "fused"}) {
    if (form == "fused" && has_no_fused_form(GetParam())) continue;
    SCOPED_TRACE(form);
    const auto other = trained(trained_case(GetParam() + "_" + form));
    for (std::size_t i = 0; i < loop->parameters().size(); ++i)
      EXPECT_LE((loop->parameters()[i] - other->parameters()[i]).abs().max().item<double>(), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Optim, Forms,
                         testing::Values("sgd", "sgd_decay", "sgd_momentum", "sgd_dampening",
                                         "sgd_nesterov", "adam", "adam_decay", "adam_amsgrad",
                                         "adamw", "adamw_decay", "adamw_amsgrad", "rmsprop",
                                         "rmsprop_decay", "rmsprop_momentum", "rmsprop_centered",
                                         "adafactor", "adafactor_decay"),
                         [](const auto& test) { return test.param; });

// The command line's words stand for PyTorch's defaults.
TEST(MakeOptimizer, GivesTheKindsDefaults) {
  const auto of = [](model::Optimizer kind, OptimizerForm form, const char* name) {
    SCOPED_TRACE(name);
    const auto optimizer = make_optimizer(kind, form, start(at::kFloat));
    for (int step = 0; step < 5; ++step) {
      set_gradients(optimizer->parameters(), step);
      optimizer->step();
    }
    expect_as_stored(trained_case(name), *optimizer);
  };
  of(model::Optimizer::sgd, OptimizerForm::fused, "sgd_fused");
  of(model::Optimizer::adam, OptimizerForm::foreach, "adam_foreach");
  of(model::Optimizer::adamw, OptimizerForm::loop, "adamw_loop");
  of(model::Optimizer::adafactor, OptimizerForm::fused, "adafactor_loop");
}

}  // namespace
}  // namespace headroom::optim
