// An optimizer of torch::optim that has run for years is taken over with its states. Once
// train::Step answered one with "no known conversion to headroom::optim::Optimizer&", and the
// moments of a long training could not be kept.
#include "headroom/optim/from_torch.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

namespace theirs = torch::optim;
using Tensors = std::vector<at::Tensor>;
using ParamGroups = std::vector<theirs::OptimizerParamGroup>;

struct TakenOver {
  const char* name;
  std::function<std::unique_ptr<theirs::Optimizer>(const ParamGroups&)> make;
  OptimizerForm form = OptimizerForm::fused;
  double tolerance = 1e-6;  // 0: every bit
};

template <typename Kind, typename Options>
TakenOver of(const char* name, const Options& options, OptimizerForm form, double tolerance) {
  return {name,
          [options](const ParamGroups& groups) { return std::make_unique<Kind>(groups, options); },
          form, tolerance};
}

const std::vector<TakenOver> kAll{
    of<theirs::AdamW>("adamw", theirs::AdamWOptions(0.01).weight_decay(0.1), OptimizerForm::fused,
                      1e-6),
    of<theirs::AdamW>("adamw_amsgrad", theirs::AdamWOptions(0.01).amsgrad(true).betas({0.5, 0.6}),
                      OptimizerForm::loop, 1e-6),
    of<theirs::Adam>("adam", theirs::AdamOptions(0.01).weight_decay(0.1).eps(1e-3),
                     OptimizerForm::foreach, 1e-6),
    of<theirs::SGD>("sgd", theirs::SGDOptions(0.1), OptimizerForm::loop, 0),
    of<theirs::SGD>("sgd_dampening",
                    theirs::SGDOptions(0.1).momentum(0.9).dampening(0.2).weight_decay(0.1),
                    OptimizerForm::loop, 0),
    of<theirs::SGD>("sgd_nesterov", theirs::SGDOptions(0.1).momentum(0.9).nesterov(true),
                    OptimizerForm::fused, 1e-6),
    of<theirs::RMSprop>("rmsprop", theirs::RMSpropOptions(0.01).momentum(0.9).weight_decay(0.1),
                        OptimizerForm::loop, 0),
    of<theirs::RMSprop>("rmsprop_centered", theirs::RMSpropOptions(0.01).centered(true).alpha(0.5),
                        OptimizerForm::fused, 1e-6),
};

// Two groups with learning rates of their own, and a parameter without a gradient so far.
std::unique_ptr<theirs::Optimizer> after_three_steps(const TakenOver& kind,
                                                     const Tensors& parameters) {
  auto optimizer = kind.make({theirs::OptimizerParamGroup({parameters[0], parameters[1]}),
                              theirs::OptimizerParamGroup({parameters[2], parameters[3]})});
  optimizer->param_groups()[1].options().set_lr(0.003);
  for (int step = 0; step < 3; ++step) {
    set_gradients(parameters, step);
    at::Tensor(parameters[1]).mutable_grad().reset();
    optimizer->step();
  }
  return optimizer;
}

class FromTorch : public testing::TestWithParam<TakenOver> {};
INSTANTIATE_TEST_SUITE_P(OfEachKind, FromTorch, testing::ValuesIn(kAll),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(FromTorch, GoesOnAsTheirsWouldHave) {
  const Tensors right = start(at::kFloat), parameters = start(at::kFloat);
  const auto goes_on = after_three_steps(GetParam(), right);
  const auto ours = from_torch(*after_three_steps(GetParam(), parameters), GetParam().form);
  EXPECT_DOUBLE_EQ(*ours->learning_rate(1), 0.003);
  for (int step = 3; step < 8; ++step) {
    set_gradients(right, step);
    goes_on->step();
    set_gradients(parameters, step);
    ours->step();
  }
  expect_near(on_cpu(parameters), on_cpu(right), GetParam().tolerance);
}

TEST_P(FromTorch, CommitsWithoutMemoryFromTheFirstStepOn) {
  const Tensors parameters = start(at::kFloat);
  const auto ours = from_torch(*after_three_steps(GetParam(), parameters), OptimizerForm::fused);
  const Tensors other = start(at::kFloat);
  const auto stepping = from_torch(*after_three_steps(GetParam(), other), OptimizerForm::fused);
  ours->reserve();
  set_gradients(parameters, 3);
  ours->commit();
  set_gradients(other, 3);
  stepping->step();
  expect_near(on_cpu(parameters), on_cpu(other), 0);
}

// The form of a run that was saved by torch::save.
TEST(FromTorch, TakesWhatWasLoadedFromAFile) {
  const Tensors parameters = start(at::kFloat);
  const auto saved = after_three_steps(kAll[0], parameters);
  std::stringstream file;
  torch::save(*saved, file);
  theirs::AdamW loaded(saved->param_groups(), theirs::AdamWOptions(0.01));
  torch::load(loaded, file);
  const auto ours = from_torch(loaded);
  EXPECT_EQ(ours->state(0).at("step").item<double>(), 3);
  EXPECT_TRUE(ours->state(1).empty());
  EXPECT_TRUE(at::equal(ours->state(2).at("exp_avg"), from_torch(*saved)->state(2).at("exp_avg")));
}

TEST(FromTorch, SharesTheStatesOnTheirCard) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const Tensors parameters = start(at::kFloat, box.device(0));
  const auto saved = after_three_steps(kAll[0], parameters);
  const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
  const auto ours = from_torch(*saved, OptimizerForm::foreach);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, before);
  EXPECT_EQ(ours->state(0).at("exp_avg").device(), box.device(0));
}

TEST(FromTorch, NamesTheClassThatItCannotTakeOver) {
  const Tensors parameters = start(at::kFloat);
  EXPECT_THAT([&] { (void)from_torch(theirs::Adagrad(parameters)); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("[from_torch] expected an AdamW, Adam, SGD or RMSprop"),
                  testing::HasSubstr("received 'torch::optim::Adagrad'"))));
  EXPECT_THROW((void)from_torch(theirs::LBFGS(parameters)), UsageError);
}

}  // namespace
}  // namespace headroom::optim
