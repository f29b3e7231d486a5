// Programs that name CUDA run on simulated cards while an AsCuda lives.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "headroom/base/error.h"
#include "headroom/sim/as_cuda.h"
#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

class CudaMeansSim : public ::testing::Test {
 protected:
  Simulation box_ = simulate("2x24GiB");
  const at::Device cuda_{at::kCUDA, 1};
};

TEST_F(CudaMeansSim, TensorsAreMadeThere) {
  const AsCuda as_cuda;
  const at::Device card = box_.device(1);
  EXPECT_EQ(at::empty({2}, cuda_).device(), card);
  EXPECT_EQ(at::zeros({2}, at::TensorOptions(cuda_).dtype(at::kLong)).device(), card);
  EXPECT_EQ(at::empty_strided({2, 2}, {1, 2}, cuda_).device(), card);
  EXPECT_EQ(at::arange(4, cuda_).device(), card);
  EXPECT_EQ(at::randperm(4, cuda_).device(), card);
  EXPECT_EQ(at::tril_indices(3, 3, 0, cuda_).device(), card);
  EXPECT_EQ(torch::tensor({1, 2}, cuda_).device(), card);
  EXPECT_EQ(at::empty({2}, at::kCUDA).device(), box_.device(0));  // the current one
  at::Device elsewhere = card;
  std::thread([&] { elsewhere = at::ones({2}, cuda_).device(); }).join();
  EXPECT_EQ(elsewhere, card);
}

TEST_F(CudaMeansSim, TensorsMoveThereAndStay) {
  const AsCuda as_cuda;
  const at::Tensor there = at::ones({2}).to(cuda_);
  EXPECT_EQ(there.device(), box_.device(1));
  EXPECT_TRUE(there.to(cuda_).is_same(there));
  EXPECT_TRUE(there.to(cuda_, at::kFloat).is_same(there));
  EXPECT_EQ(there.to(at::kCUDA).device(), box_.device(0));
  const at::Tensor half = there.to(cuda_, at::kHalf);
  EXPECT_EQ(half.scalar_type(), at::kHalf);
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  leaf.to(cuda_).to(at::kDouble).sum().backward();
  EXPECT_TRUE(leaf.grad().is_cpu());
}

TEST_F(CudaMeansSim, AModuleTrainsThere) {
  const AsCuda as_cuda;
  torch::nn::Linear net(4, 1);
  net->to(cuda_);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  net->forward(at::ones({2, 4}, cuda_)).sum().backward();
  optimizer.step();
  EXPECT_EQ(net->weight.grad().device(), box_.device(1));
}

TEST_F(CudaMeansSim, OneAtATime) {
  const AsCuda as_cuda;
  EXPECT_THROW(AsCuda(), UsageError);
}

TEST_F(CudaMeansSim, AfterItsEndCudaIsCuda) {
  { const AsCuda as_cuda; }
  EXPECT_THROW((void)at::empty({2}, cuda_), c10::Error);
  const AsCuda again;
  EXPECT_EQ(at::empty({2}, cuda_).device(), box_.device(1));
}

}  // namespace
}  // namespace headroom::sim
