#include "headroom/libtorch/on.h"

#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

TEST(On, MakesAModuleWithoutACopyOnTheHost) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const auto net = on(box.device(1), [] { return torch::nn::Linear(256, 1024); });
  EXPECT_EQ(net->weight.device().str(), "sim:1");
  EXPECT_EQ(net->bias.device().str(), "sim:1");
  EXPECT_EQ(box.card(1).statistics().allocated_bytes.all.current, (1 << 20) + 4096);
}

TEST(On, EndsWithTheFunctionAlsoWhenItThrows) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_THROW(on(box.device(0), []() -> int { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_TRUE(torch::empty({3}).is_cpu());
}

TEST(On, ObeysTheInnermostScope) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const OnDeviceScope outer(box.device(0));
  EXPECT_EQ(on(box.device(1), [] { return torch::ones({2}); }).device().str(), "sim:1");
  EXPECT_EQ(torch::ones({2}).device().str(), "sim:0");
  EXPECT_TRUE(on(torch::kCPU, [] { return torch::ones({2}); }).is_cpu());
}

TEST(On, MakesFloatsInTheTypeThatIsAskedFor) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const OnDeviceScope scope(box.device(0), torch::kBFloat16);
  const auto net = torch::nn::Linear(256, 1024);
  EXPECT_EQ(net->weight.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, (1 << 19) + 2048);
  EXPECT_EQ(torch::zeros({2}, torch::kLong).scalar_type(), torch::kLong);
  EXPECT_EQ(torch::arange(3).scalar_type(), torch::kLong);
  EXPECT_EQ(torch::full({2}, 1).scalar_type(), torch::kLong);
  EXPECT_EQ(torch::full({2}, 0.5).scalar_type(), torch::kBFloat16);
  EXPECT_EQ(on(torch::kCPU, [] { return torch::ones({2}); }).scalar_type(), torch::kFloat);
}

TEST(On, LeavesWhatIsMadeLikeATensorWhereThatTensorIs) {
  const torch::Tensor host = torch::ones({2});
  const sim::Simulation box = sim::simulate("1x1GiB");
  const OnDeviceScope scope(box.device(0));
  EXPECT_TRUE(torch::empty_like(host).is_cpu());
  EXPECT_TRUE(host.to(torch::kFloat64).is_cpu());
}

TEST(On, TakesTensorsOfNumbersAlong) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const torch::Tensor there = on(box.device(0), [] { return torch::tensor({1.5F, 2.5F}); });
  EXPECT_EQ(there.device().str(), "sim:0");
  EXPECT_TRUE(there.cpu().equal(torch::tensor({1.5F, 2.5F})));
}

}  // namespace
}  // namespace headroom::libtorch
