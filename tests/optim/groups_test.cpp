// Groups of parameters with options of their own.
#include <gmock/gmock.h>

#include "headroom/base/error.h"
#include "headroom/optim/optimizer.h"
#include "tests/optim/figures.h"

namespace headroom::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

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

}  // namespace
}  // namespace headroom::optim
