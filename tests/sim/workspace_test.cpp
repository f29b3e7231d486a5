#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

using torch::Tensor;

constexpr std::int64_t kCublas = 8519680;  // (2 x 4096 + 8 x 16) KiB
constexpr std::int64_t kLt = 1048576;

std::int64_t allocated(const Simulation& box) {
  return box.card(0).statistics().allocated_bytes.all.current;
}

TEST(CublasWorkspace, IsTakenAtTheFirstProductAndKept) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 4}, box.device(0));
  const std::int64_t before = allocated(box);
  (void)at::mm(x, x);
  EXPECT_EQ(allocated(box) - before, kCublas);
  (void)at::bmm(x.unsqueeze(0), x.unsqueeze(0));
  EXPECT_EQ(allocated(box) - before, kCublas);
}

TEST(CublasWorkspace, Is32MiBOnHopper) {
  const Simulation box = simulate("1xH100");
  const Tensor x = torch::ones({4, 4}, box.device(0));
  const std::int64_t before = allocated(box);
  (void)at::mm(x, x);
  EXPECT_EQ(allocated(box) - before, 32 << 20);
}

// PyTorch 2.11 adds a bias with cuBLASLt, which has a workspace of its own.
TEST(CublasWorkspace, ComesWithCublasLtsForABias) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 4}, box.device(0)), bias = torch::ones({4}, box.device(0));
  const std::int64_t before = allocated(box);
  (void)at::addmm(x, x, x);  // a whole matrix is added without it
  EXPECT_EQ(allocated(box) - before, kCublas);
  (void)at::addmm(bias, x, x);
  EXPECT_EQ(allocated(box) - before, kCublas + kLt);
}

TEST(CublasWorkspace, ComesAfterTheResult) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 4}, box.device(0));
  trace::Recorder recorder;
  box.card(0).record(&recorder);
  const Tensor product = at::mm(x, x);
  box.card(0).record(nullptr);
  std::vector<std::int64_t> sizes;
  for (std::uint64_t i = 0; i < recorder.recorded(); ++i)
    if (recorder.event(i).kind == trace::Kind::alloc)
      sizes.push_back(recorder.event(i).bytes.count);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{64, kCublas}));
}

TEST(CublasWorkspace, IsTakenAgainByTheBackwardThread) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 4}, box.device(0)).set_requires_grad(true);
  Tensor product = at::mm(x, x);
  const std::int64_t before = allocated(box);
  product.sum().backward();
  product = Tensor();
  EXPECT_GE(allocated(box) - before, kCublas - 1024);
}

TEST(CublasWorkspace, GoesWithTheHandleToTheNextThread) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 4}, box.device(0));
  const auto product_in_a_thread = [&] { std::thread([&] { (void)at::mm(x, x); }).join(); };
  product_in_a_thread();
  const std::int64_t after_one = allocated(box);
  product_in_a_thread();
  EXPECT_EQ(allocated(box), after_one);
}

TEST(CublasWorkspace, IsLeftOutOnRequestOrIfUnknown) {
  for (const auto& [spec, options] : std::vector<std::pair<std::string, SimulationOptions>>{
           {"1xRTX4090", {.cublas_workspaces = false}},
           {"1xRTX4090", {.rules = Rules::cpu}},
           {"1x8GiB", {}}}) {
    const Simulation box = simulate(spec, options);
    const Tensor x = torch::ones({4, 4}, box.device(0));
    const std::int64_t before = allocated(box);
    (void)at::mm(x, x);
    EXPECT_EQ(allocated(box), before) << spec;
  }
}

TEST(Addmm, RefusesShapesThatDoNotFit) {
  const Simulation box = simulate("1xRTX4090");
  const Tensor x = torch::ones({4, 3}, box.device(0)), bias = torch::ones({3}, box.device(0));
  EXPECT_THROW((void)at::addmm(bias, x, x), c10::Error);
}

}  // namespace
}  // namespace headroom::sim
