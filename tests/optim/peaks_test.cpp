// The memory that a step needs beside parameters, gradients and state, counted by hand from
// PyTorch's Python (torch/optim of 2.11): its temporaries, and the Python variables that still hold
// tensors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "headroom/optim/clip.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/simulate.h"

namespace headroom::optim {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kNumber = 512;  // of an allocation that holds one number
constexpr std::int64_t kRow = 4096;    // of 1024 floats

// Matrices of 1024 columns in float: 4, 4 and 1 MiB.
constexpr std::int64_t kRows[] = {1024, 1024, 256};
constexpr std::int64_t kLargest = 4 * kMiB, kAll = 9 * kMiB;

using Made = std::unique_ptr<Optimizer>;
using Make = std::function<Made(std::vector<at::Tensor>)>;

// The most that a step allocates beyond the memory before it: the third step, when all state
// exists, or the first, which also creates the state.
std::int64_t extra_of(const Make& make, int step = 3) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  std::vector<at::Tensor> parameters;
  for (const std::int64_t rows : kRows) {
    parameters.push_back(torch::empty({rows, 1024}, box.device(0)).requires_grad_());
    parameters.back().mutable_grad() = torch::empty({rows, 1024}, box.device(0));
  }
  const Made optimizer = make(parameters);
  for (int before = 1; before < step; ++before) optimizer->step();
  const auto allocated = [&] { return box.card(0).statistics().allocated_bytes.all; };
  const std::int64_t before = allocated().current;
  box.card(0).reset_peaks();
  optimizer->step();
  return allocated().peak - before;
}

Make adamw(const AdamWOptions& options) {
  return [=](std::vector<at::Tensor> parameters) { return make_adamw(parameters, options); };
}
Make adam(const AdamOptions& options) {
  return [=](std::vector<at::Tensor> parameters) { return make_adam(parameters, options); };
}
Make sgd(const SgdOptions& options) {
  return [=](std::vector<at::Tensor> parameters) { return make_sgd(parameters, options); };
}
Make adafactor(const AdafactorOptions& options) {
  return [=](std::vector<at::Tensor> parameters) { return make_adafactor(parameters, options); };
}

// `denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)`: the root and the quotient, and
// the denominator of the parameter before, which the loop's variable still holds.
TEST(PeakOfAStep, OfAdamInALoopIsThreeTimesTheLargest) {
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::loop})), 3 * kLargest);
  EXPECT_EQ(extra_of(adam({.form = OptimizerForm::loop})), 3 * kLargest);
}

// Adam's decay makes a gradient of its own, `grad = grad.add(param, alpha=weight_decay)`.
TEST(PeakOfAStep, OfAdamWithDecayInALoopIsOneMore) {
  EXPECT_EQ(extra_of(adam({.weight_decay = 0.1, .form = OptimizerForm::loop})), 4 * kLargest);
}

TEST(PeakOfAStep, OfAdamInTheForeachFormIsOnceTheParameters) {
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::foreach})), kAll);
  // The gradients with decay are gone before the roots are made.
  EXPECT_EQ(extra_of(adam({.weight_decay = 0.1, .form = OptimizerForm::foreach})), kAll);
}

TEST(PeakOfAStep, OfFusedFormsIsNothing) {
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::fused})), 0);
  EXPECT_EQ(extra_of(adam({.weight_decay = 0.1, .form = OptimizerForm::fused})), 0);
  EXPECT_EQ(extra_of(sgd({.momentum = 0.9, .form = OptimizerForm::fused})), 0);
}

TEST(PeakOfAStep, OfSgdIsNothingUnlessAGradientIsMade) {
  for (const OptimizerForm form : {OptimizerForm::loop, OptimizerForm::foreach}) {
    EXPECT_EQ(extra_of(sgd({.form = form})), 0);
    EXPECT_EQ(extra_of(sgd({.momentum = 0.9, .form = form})), 0);
  }
  // In a loop the one before is gone: the variable holds the plain gradient when it is made.
  EXPECT_EQ(extra_of(sgd({.weight_decay = 0.1, .form = OptimizerForm::loop})), kLargest);
  EXPECT_EQ(extra_of(sgd({.weight_decay = 0.1, .form = OptimizerForm::foreach})), kAll);
}

// Adam keeps two tensors as large as the parameters; the fused form counts its steps on the card.
TEST(PeakOfAStep, InTheFirstTheStateIsAdded) {
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::loop}), 1), 2 * kAll + 3 * kLargest);
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::foreach}), 1), 3 * kAll);
  EXPECT_EQ(extra_of(adamw({.form = OptimizerForm::fused}), 1), 2 * kAll + 3 * kNumber);
  EXPECT_EQ(extra_of(sgd({.momentum = 0.9, .form = OptimizerForm::loop}), 1), kAll);
}

// `variance = row_var @ col_var` becomes the update in place; the one before lives until then.
// Beside them the mean squares of a row and of a column, and a number.
TEST(PeakOfAStep, OfAdafactorInALoopIsTwiceTheLargest) {
  EXPECT_EQ(extra_of(adafactor({})), 2 * kLargest + 2 * kRow + kNumber);
}

TEST(PeakOfAStep, OfAdafactorInTheForeachFormIsOnceTheParameters) {
  EXPECT_EQ(extra_of(adafactor({.form = OptimizerForm::foreach})), kAll + 3 * kNumber);
}

// The update of the parameter before lives while the squares are taken and a number added to them.
TEST(PeakOfAStep, OfTransformersAdafactorIsThreeTimesTheLargest) {
  const Make make = [](std::vector<at::Tensor> parameters) {
    return make_adafactor_hf(
        parameters, {.learning_rate = 1e-3, .scale_parameter = false, .relative_step = false});
  };
  EXPECT_EQ(extra_of(make), 3 * kLargest);
}

// A norm per gradient, all of them in one tensor, the total norm, and the factor made from it.
TEST(PeakOfClipping, IsANumberAGradientAndAFewMore) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  std::vector<at::Tensor> parameters;
  for (const std::int64_t rows : kRows) {
    parameters.push_back(torch::empty({rows, 1024}, box.device(0)).requires_grad_());
    parameters.back().mutable_grad() = torch::empty({rows, 1024}, box.device(0));
  }
  const auto allocated = [&] { return box.card(0).statistics().allocated_bytes.all; };
  for (const bool foreach : {true, false}) {
    const std::int64_t before = allocated().current;
    box.card(0).reset_peaks();
    (void)clip_gradients(parameters, 1.0, {.foreach = foreach});
    EXPECT_EQ(allocated().peak - before, 5 * kNumber);
    EXPECT_EQ(allocated().current, before);
  }
}

}  // namespace
}  // namespace headroom::optim
