// The numbers are those of PyTorch 2.11's schedulers and of transformers 4.57.6 for a learning rate
// of 1, step by step.
#include "headroom/optim/schedule.h"

#include <gmock/gmock.h>

#include <vector>

#include "headroom/base/error.h"
#include "headroom/optim/optimizer.h"

namespace headroom::optim {
namespace {

void expect_rates(const Schedule& schedule, const std::vector<double>& theirs) {
  for (std::size_t step = 0; step < theirs.size(); ++step)
    EXPECT_NEAR(schedule(static_cast<std::int64_t>(step)), theirs[step], 1e-14) << "step " << step;
}

TEST(Schedule, OfTransformersWithWarmup) {
  // get_cosine_schedule_with_warmup(optimizer, 3, 10), until its end
  expect_rates(warmed_up(3, cosine(7)),
               {0, 1.0 / 3, 2.0 / 3, 1, 0.95048443395121, 0.811744900929367, 0.611260466978157,
                0.388739533021843, 0.188255099070633, 0.0495155660487905, 0});
  // get_cosine_schedule_with_warmup(optimizer, 0, 10, num_cycles=1.5)
  expect_rates(cosine(10, 0, 1.5), {1, 0.793892626146237, 0.345491502812526, 0.0244717418524232,
                                    0.0954915028125262, 0.5, 0.904508497187474, 0.975528258147577,
                                    0.654508497187474, 0.206107373853764, 0});
  // get_cosine_with_min_lr_schedule_with_warmup(optimizer, 2, 8, min_lr_rate=0.1)
  expect_rates(warmed_up(2, cosine(6, 0.1)),
               {0, 0.5, 1, 0.939711431702997, 0.775, 0.55, 0.325, 0.160288568297003, 0.1});
  // get_linear_schedule_with_warmup(optimizer, 2, 8)
  expect_rates(warmed_up(2, linear(6)), {0, 0.5, 1, 5.0 / 6, 4.0 / 6, 0.5, 2.0 / 6, 1.0 / 6, 0, 0});
  // get_polynomial_decay_schedule_with_warmup(optimizer, 2, 8, lr_end=0.1, power=2.0)
  expect_rates(warmed_up(2, polynomial(6, 2, 0.1)),
               {0, 0.5, 1, 0.725, 0.5, 0.325, 0.2, 0.125, 0.1, 0.1});
}

TEST(Schedule, OfPyTorch) {
  expect_rates(stepped(3, 0.5), {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25});
  expect_rates(one_cycle(10),
               {0.04, 0.52, 1, 0.950484632013474, 0.811745653949763, 0.611262021936289,
                0.388741978063711, 0.188258346050237, 0.0495193679865263, 4e-06});
  // OneCycleLR(optimizer, 1, total_steps=7, pct_start=0.5, div_factor=10, final_div_factor=100)
  expect_rates(one_cycle(7, {.rising = 0.5, .first = 0.1, .last = 0.001}),
               {0.1, 0.410942352531274, 0.914057647468726, 0.950533949517258, 0.611649206511179,
                0.189066843971563, 0.001});
}

TEST(Schedule, KeepsItsLastFactor) {
  EXPECT_EQ(constant()(1000), 1);
  EXPECT_EQ(linear(5, 0.25)(1000), 0.25);
  EXPECT_NEAR(cosine(5)(1000), 0, 1e-15);
  EXPECT_NEAR(one_cycle(10)(1000), 4e-6, 1e-15);
  EXPECT_EQ(warmed_up(0, constant())(0), 1);
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THROW((void)linear(0), UsageError);
  EXPECT_THROW((void)cosine(-1), UsageError);
  EXPECT_THROW((void)warmed_up(-1, constant()), UsageError);
  EXPECT_THROW((void)stepped(0), UsageError);
  EXPECT_THROW((void)polynomial(5, -1), UsageError);
  EXPECT_THROW((void)one_cycle(10, {.rising = 1.5}), UsageError);
}

TEST(Schedule, OfOneStep) {
  EXPECT_NEAR(one_cycle(1)(0), 4e-6, 1);  // finite
  EXPECT_EQ(linear(1)(0), 1);
}

}  // namespace
}  // namespace headroom::optim
