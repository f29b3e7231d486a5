// The host's side is one that pretends: what crosses comes back four times as large. Two processes
// and gloo: tests/python/ranks_test.py.
#include "headroom/parallel/sim_backend.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/parallel/pretended_ranks.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor all_reduced(const sim::Simulation& box, const torch::Tensor& values,
                          c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  const auto backend = sim_backend(pretended_ranks(1, 4));
  Tensors tensors{values.to(box.device(0))};
  c10d::AllreduceOptions options;
  options.reduceOp = std::move(op);
  backend->allreduce(tensors, options)->wait();
  return tensors[0].cpu();
}

TEST(SimBackend, IsTheRankOfItsHost) {
  const auto backend = sim_backend(pretended_ranks(1, 4));
  EXPECT_EQ(backend->getRank(), 1);
  EXPECT_EQ(backend->getSize(), 4);
}

TEST(SimBackend, ExchangesEverythingInComputeMode) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const torch::Tensor values = torch::arange(6).to(torch::kFloat);
  EXPECT_TRUE(all_reduced(box, values).equal(4 * values));
  EXPECT_TRUE(all_reduced(box, values.to(torch::kHalf)).equal((4 * values).to(torch::kHalf)));
  EXPECT_TRUE(all_reduced(box, values, c10d::ReduceOp::AVG).equal(values));
}

TEST(SimBackend, ExchangesSmallWholeNumbersOnAShapeOnlyCard) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_TRUE(all_reduced(box, torch::arange(6)).equal(4 * torch::arange(6)));
  EXPECT_TRUE(all_reduced(box, torch::ones({6})).equal(torch::zeros({6})));  // has no values
  EXPECT_EQ(box.card(0).values_read_as_zero(), 1U);                          // by .cpu(), above
}

TEST(SimBackend, WritesIntoPartsOfUnwrittenMemory) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto backend = sim_backend(pretended_ranks(1, 4));
  torch::Tensor whole =
      torch::empty({4, 3}, torch::TensorOptions(torch::kLong).device(box.device(0)));
  std::vector<Tensors> outputs{whole.unbind()};
  Tensors inputs{torch::arange(3).to(box.device(0))};
  backend->allgather(outputs, inputs)->wait();
  EXPECT_TRUE(whole.cpu().equal(torch::arange(3).repeat({4, 1})));
}

TEST(SimBackend, ReceivesWhenItIsWaitedFor) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const auto backend = sim_backend(pretended_ranks(1, 4));
  Tensors tensors{torch::ones({3}, box.device(0))};
  const auto work = backend->recv(tensors, 0, 0);
  EXPECT_TRUE(tensors[0].cpu().equal(torch::ones({3})));
  EXPECT_TRUE(work->wait());
  EXPECT_TRUE(work->isCompleted());
}

}  // namespace
}  // namespace headroom::parallel
