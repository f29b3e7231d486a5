#include "headroom/sim/simulate.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/on.h"

namespace headroom::sim {
namespace {

TEST(Simulate, GivesDevicesThatTensorsLiveOn) {
  const Simulation box = simulate("2x1GiB");
  const torch::Tensor x = torch::ones({256, 1024}, box.device(1));
  EXPECT_EQ(x.device().str(), "sim:1");
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 0);
  EXPECT_EQ(box.card(1).statistics().allocated_bytes.all.current, 1 << 20);
}

TEST(Simulate, FollowsABackwardPassOnTheCpu) {
  auto before = torch::ones({3}, torch::requires_grad());
  before.sum().backward();
  const Simulation box = simulate("2x1GiB");
  auto x = torch::ones({3}, torch::device(box.device(1)).requires_grad(true));
  x.sum().backward();
  EXPECT_EQ(x.grad().device(), box.device(1));
}

}  // namespace
}  // namespace headroom::sim
