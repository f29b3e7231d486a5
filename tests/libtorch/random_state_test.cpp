#include "headroom/libtorch/random_state.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

TEST(RandomState, BringsTheSameNumbersAgainOnEachDevice) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  const std::vector<c10::Device> devices{box.device(0), box.device(1), box.device(0),
                                         c10::Device(at::kMeta)};
  const auto draw = [&] {
    std::vector<at::Tensor> all{at::rand({5})};
    for (int i = 0; i < 2; ++i)
      all.push_back(at::rand({5}, at::TensorOptions(box.device(i))).cpu());
    return at::stack(all);
  };
  const RandomState before(devices);
  const at::Tensor first = draw();
  const RandomState after = before.now();
  const at::Tensor second = draw();
  EXPECT_FALSE(at::equal(first, second));
  before.restore();
  EXPECT_TRUE(at::equal(draw(), first));
  after.restore();
  EXPECT_TRUE(at::equal(draw(), second));
}

TEST(RandomState, LeavesOtherDevicesAlone) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  const auto draw = [&] { return at::rand({5}, at::TensorOptions(box.device(1))).cpu(); };
  const RandomState before({box.device(0)});
  const at::Tensor first = draw();
  before.restore();
  EXPECT_FALSE(at::equal(draw(), first));
}

TEST(DevicesOf, NamesEachOnce) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const auto on = [&](int i) { return at::empty({1}, at::TensorOptions(box.device(i))); };
  EXPECT_THAT(devices_of({on(1), at::Tensor(), at::ones({1}), on(0), on(1)}),
              testing::ElementsAre(box.device(1), c10::Device(at::kCPU), box.device(0)));
}

}  // namespace
}  // namespace headroom::libtorch
