// Operators that only CUDA has kernels of half precision for.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"
#include "sides.h"

namespace headroom::sim {
namespace {

at::Tensor pooled(const at::Tensor& x) {
  return at::avg_pool3d(x, {2, 2, 2});
}

TEST(HalfPrecision, IsTheCpusFloatRoundedOnce) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor x = torch::randn({1, 2, 4, 4, 4}).to(type);
    EXPECT_THROW((void)pooled(x), c10::Error) << "the CPU has a kernel";
    const at::Tensor y = pooled(x.to(box.device(0)));
    EXPECT_TRUE(y.cpu().equal(pooled(x.to(at::kFloat)).to(type)));
  }
}

TEST(HalfPrecision, IsWrittenIntoAGivenOut) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const at::Tensor x = torch::randn({1, 2, 4, 4, 4}).to(at::kBFloat16);
  at::Tensor out = torch::zeros({1}, x.options().device(box.device(0)));
  at::avg_pool3d_out(out, x.to(box.device(0)), {2, 2, 2});
  EXPECT_TRUE(out.cpu().equal(pooled(x.to(at::kFloat)).to(at::kBFloat16)));
}

TEST(HalfPrecision, LeavesFloatAlone) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const at::Tensor x = torch::randn({1, 2, 4, 4, 4});
  EXPECT_TRUE(pooled(x.to(box.device(0))).cpu().equal(pooled(x)));
}

TEST(HalfPrecision, TakesHalfTheBytesOfFloat) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const at::Tensor x = torch::randn({1, 2, 64, 64, 64}).to(at::kBFloat16).to(box.device(0));
  const auto before = box.card(0).statistics().allocated_bytes.all.current;
  const at::Tensor y = pooled(x);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current - before, 2 * 32 * 32 * 32 * 2);
}

TEST(HalfPrecision, ComputesASoftmaxInFloatAsTheCpuDoes) {
  const at::Tensor numbers = torch::randn({6, 10}).to(at::kHalf);
  for (const bool logarithm : {false, true})
    expect_as_on_cpu([&](torch::Device device) {
      const at::Tensor x = numbers.clone().to(device).requires_grad_(true);
      const at::Tensor y =
          logarithm ? at::log_softmax(x, 1, at::kFloat) : at::softmax(x, 1, at::kFloat);
      (y * y).sum().backward();
      return std::vector<at::Tensor>{y, x.grad()};
    });
}

}  // namespace
}  // namespace headroom::sim
