// Running out of memory: wherever it happens, it is caught as c10::OutOfMemoryError, all memory is
// back, and the same step then works.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/sim/fixtures/step.h"

namespace headroom::sim {
namespace {

using namespace headroom::literals;
using fixtures::Step;

std::uint64_t requests_of(const Card& card, Step& step) {
  const std::uint64_t before = card.requests();
  step.run();
  return card.requests() - before;
}

void expect_all_back_after_each_failure(Mode mode) {
  const Simulation box = simulate("1x1GiB", {.mode = mode});
  Card& card = box.card(0);
  Step step(box.device(0));
  step.run();  // makes the optimizer's state
  const std::uint64_t requests = requests_of(card, step);
  ASSERT_GT(requests, 30u);
  const auto at_rest = card.statistics();
  for (std::uint64_t k = 1; k <= requests; ++k) {
    {
      const InjectionScope scope(card, once(k));
      EXPECT_THROW(step.run(), c10::OutOfMemoryError) << "request " << k;
    }
    step.forget_gradients();
    const auto after = card.statistics();
    ASSERT_EQ(after.allocated_bytes.all.current, at_rest.allocated_bytes.all.current) << k;
    ASSERT_EQ(after.requested_bytes.all.current, at_rest.requested_bytes.all.current) << k;
    ASSERT_EQ(after.active.all.current, at_rest.active.all.current) << k;
    step.set_batch(k % 2 == 0 ? 8 : 4);
    EXPECT_NO_THROW(step.run()) << "after request " << k << " was refused";
    step.set_batch(8);
  }
  EXPECT_EQ(card.statistics().allocated_bytes.all.current, at_rest.allocated_bytes.all.current);
}

// More than any machine that runs this has: the card says no, not the host.
TEST(OutOfMemory, OfTheCardComesBeforeThatOfTheHost) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Simulation box = simulate("1x24GiB", {.mode = mode});
    EXPECT_THROW(at::empty({std::int64_t{1} << 44}, box.device(0)), c10::OutOfMemoryError);
    EXPECT_EQ(box.card(0).statistics().num_ooms, 1);
  }
}

TEST(OutOfMemory, OfTheHostLeavesNothingOnTheCard) {
  const Simulation box = simulate("1x200000GiB", {.mode = Mode::compute});
  const auto beyond_addresses = std::int64_t{150} << 40;
  EXPECT_THROW(at::empty({beyond_addresses}, at::device(box.device(0)).dtype(at::kByte)),
               c10::Error);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 0);
}

TEST(OutOfMemory, AnywhereInAStepLeavesNothingBehind) {
  expect_all_back_after_each_failure(Mode::shape_only);
}

TEST(OutOfMemory, AnywhereInAComputedStepLeavesNothingBehind) {
  expect_all_back_after_each_failure(Mode::compute);
}

// As a user meets it: the card is too small for the batch, not for half of it.
TEST(OutOfMemory, OfAFullCardDoesNotHappenWithASmallerBatch) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Simulation box = simulate("1x24MiB", {.mode = mode});
    Step step(box.device(0), 4);
    step.run();
    const std::int64_t at_rest = box.card(0).statistics().allocated_bytes.all.current;
    step.set_batch(1 << 16);
    EXPECT_THROW(step.run(), c10::OutOfMemoryError);
    step.forget_gradients();
    EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, at_rest);
    EXPECT_GE(box.card(0).statistics().num_ooms, 1);
    step.set_batch(1 << 12);
    EXPECT_NO_THROW(step.run());
  }
}

TEST(OutOfMemory, InABackwardThreadReachesTheCaller) {
  const Simulation box = simulate("2x1GiB");
  auto x = torch::ones({1024}, torch::device(box.device(1)).requires_grad(true));
  const torch::Tensor y = x.square().sum();
  const InjectionScope scope(box.card(1), once(1));
  EXPECT_THROW(y.backward({}, true), c10::OutOfMemoryError);
  y.backward();
  EXPECT_EQ(x.grad().device(), box.device(1));
}

TEST(OutOfMemory, ThatLastsEndsWhenItIsLifted) {
  const Simulation box = simulate("1x1GiB");
  Step step(box.device(0));
  step.run();
  const Lift lift;
  const InjectionScope scope(box.card(0), lasting(30, lift));
  int tries = 0;
  for (; tries < 5; ++tries) {
    try {
      step.run();
      break;
    } catch (const c10::OutOfMemoryError&) {
      step.forget_gradients();
      if (tries == 2) lift.now();
    }
  }
  EXPECT_EQ(tries, 3);
}

TEST(OutOfMemory, ByChanceNeverLosesMemory) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  Step step(box.device(0));
  step.run();
  const std::int64_t at_rest = box.card(0).statistics().allocated_bytes.all.current;
  int failures = 0;
  const InjectionScope scope(box, randomly(0.01, 3));
  for (int i = 0; i < 50; ++i) {
    try {
      step.run();
    } catch (const c10::OutOfMemoryError&) {
      ++failures;
    }
    step.forget_gradients();
    ASSERT_EQ(box.card(0).statistics().allocated_bytes.all.current, at_rest) << i;
  }
  EXPECT_GT(failures, 5);
  EXPECT_LT(failures, 50);
}

}  // namespace
}  // namespace headroom::sim
