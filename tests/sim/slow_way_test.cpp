// Operators whose shapes are unknown unless they run.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using ::testing::HasSubstr;

// As a program's own operators are: a kernel for the CPU, and nothing that says what comes out.
torch::Tensor twice_as_long(const torch::Tensor& x) {
  return torch::cat({x, x});
}

torch::Tensor call(const char* name, const torch::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<torch::Tensor(const torch::Tensor&)>()
      .call(x);
}

TORCH_LIBRARY(headroom_slow_way_test, library) {
  library.def("twice_as_long(Tensor x) -> Tensor");
  library.impl("twice_as_long", torch::kCPU, &twice_as_long);
}
constexpr const char* kOwn = "headroom_slow_way_test::twice_as_long";

std::string text_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::NotImplementedError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(SlowWay, IsOfferedForAnOperatorWithoutARule) {
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor x = torch::randn({8, 4}, box.device(0));
  const std::string text = text_of([&] { (void)call(kOwn, x); });
  EXPECT_THAT(text, HasSubstr(kOwn));
  EXPECT_THAT(text, HasSubstr("slow_way"));
}

TEST(SlowWay, AsksTheCpusKernelForShapesAndChargesTheCard) {
  const Simulation box = simulate("1x1GiB", {.slow_way = true});
  const torch::Tensor x = torch::randn({1024, 128}, box.device(0));
  const torch::Tensor y = call(kOwn, x);
  EXPECT_EQ(y.sizes(), torch::IntArrayRef({2048, 128}));
  EXPECT_EQ(y.device(), box.device(0));
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 3 * 1024 * 128 * 4);
}

TEST(SlowWay, IsTheOnlyWayInComputeModeAndNeedsNoPermission) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const torch::Tensor y = call(kOwn, torch::full({2}, 3.0, box.device(0)));
  EXPECT_TRUE(y.cpu().equal(torch::full({4}, 3.0)));
}

TEST(SlowWay, IsRefusedForShapesThatDependOnValues) {
  const Simulation box = simulate("1x1GiB", {.slow_way = true});
  const torch::Tensor x = torch::randn({8}, box.device(0));
  EXPECT_THAT(text_of([&] { (void)x.nonzero(); }), HasSubstr("nonzero_static"));
  EXPECT_THAT(text_of([&] { (void)x.masked_select(x > 0); }), HasSubstr("masked_fill"));
  EXPECT_THAT(text_of([&] { (void)torch::_unique2(x); }), HasSubstr("sort"));
  EXPECT_THAT(text_of([&] { (void)x.to(torch::kLong).bincount(); }), HasSubstr("index_add_"));
  EXPECT_THAT(text_of([&] { (void)x.index({x > 0}); }), HasSubstr("mask"));
  EXPECT_THAT(text_of([&] { (void)torch::repeat_interleave(x.to(torch::kLong)); }),
              HasSubstr("output_size"));
}

TEST(SlowWay, IsNotNeededForAMaskThatOnlyFills) {
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor x = torch::randn({8}, box.device(0));
  x.index_put_({x > 0}, torch::tensor(2.0));
  EXPECT_EQ(x.sizes(), torch::IntArrayRef({8}));
}

TEST(ComputeMode, RunsOperatorsThatDependOnValues) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute});
  const torch::Tensor x = torch::tensor({0.0F, 2.0F, 0.0F, 5.0F}).to(box.device(0));
  EXPECT_TRUE(x.nonzero().cpu().equal(torch::tensor({{1}, {3}})));
  EXPECT_TRUE(x.index({x > 1}).cpu().equal(torch::tensor({2.0F, 5.0F})));
  EXPECT_TRUE(torch::repeat_interleave(x.to(torch::kLong))
                  .cpu()
                  .equal(torch::tensor({1, 1, 3, 3, 3, 3, 3}, torch::kLong)));
}

TEST(Equal, WithoutValuesIsTrueForTheSameMemoryAndElseCounted) {
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor x = torch::randn({8}, box.device(0));
  EXPECT_TRUE(x.equal(x.view({8})));
  EXPECT_FALSE(x.equal(torch::zeros({9}, box.device(0))));
  EXPECT_EQ(box.card(0).values_read_as_zero(), 0U);
  EXPECT_FALSE(x.equal(torch::ones({8}, box.device(0))));
  EXPECT_EQ(box.card(0).values_read_as_zero(), 1U);
}

TEST(OutArgument, GrowsToTheShapeOfTheOperatorWithoutOne) {
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor x = torch::ones({3, 4}, box.device(0));
  torch::Tensor out = torch::empty({0}, x.options().dtype(torch::kBool));
  torch::logical_not_out(out, x);
  EXPECT_EQ(out.sizes(), x.sizes());
  EXPECT_EQ(out.storage().nbytes(), 12U);
}

TEST(FourierTransform, HasTheLayoutOfCufft) {
  // The transformed dimension innermost. Source: aten/src/ATen/native/cuda/SpectralOps.cpp,
  // _exec_fft.
  const Simulation box = simulate("1x1GiB");
  const torch::Tensor x = torch::ones({4, 6, 8}, box.device(0));
  EXPECT_EQ(torch::fft::rfft(x, {}, 1).strides(), torch::IntArrayRef({32, 1, 4}));
  EXPECT_EQ(torch::fft::rfft2(x).strides(), torch::IntArrayRef({30, 5, 1}));
}

}  // namespace
}  // namespace headroom::sim
