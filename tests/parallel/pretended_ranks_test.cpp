#include "headroom/parallel/pretended_ranks.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

using c10d::ReduceOp;
using Tensors = std::vector<torch::Tensor>;

// Since 2.13 it has a name without NCCL in it.
ReduceOp multiplied_by(double factor) {
#if TORCH_VERSION_MINOR >= 13
  return c10d::makePreMulSum(factor);
#else
  return c10d::makeNCCLPreMulSum(factor);
#endif
}

torch::Tensor numbers(c10::Device device) {
  return torch::arange(4, torch::TensorOptions(torch::kFloat).device(device));
}

// On a card that computes, and on the host: the same answers.
class PretendedRanks : public testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] c10::Device device() const { return GetParam() ? box_.device(0) : torch::kCPU; }
  [[nodiscard]] torch::Tensor all_reduced(ReduceOp op, torch::Tensor tensor) const {
    Tensors tensors{std::move(tensor)};
    c10d::AllreduceOptions options;
    options.reduceOp = std::move(op);
    third_of_four_->allreduce(tensors, options)->wait();
    return tensors[0].cpu();
  }
  [[nodiscard]] torch::Tensor all_reduced(ReduceOp op) const {
    return all_reduced(std::move(op), numbers(device()));
  }

  const sim::Simulation box_ = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const c10::intrusive_ptr<c10d::Backend> third_of_four_ = pretended_ranks(2, 4);
  const torch::Tensor expected_ = numbers(torch::kCPU);
};

INSTANTIATE_TEST_SUITE_P(Devices, PretendedRanks, testing::Bool(),
                         [](const auto& of) { return of.param ? "Card" : "Host"; });

TEST_P(PretendedRanks, ReduceAsManyEquals) {
  EXPECT_TRUE(all_reduced(ReduceOp::SUM).equal(4 * expected_));
  EXPECT_TRUE(all_reduced(ReduceOp::AVG).equal(expected_));
  EXPECT_TRUE(all_reduced(ReduceOp::MAX).equal(expected_));
  EXPECT_TRUE(all_reduced(ReduceOp::PRODUCT).equal(expected_.pow(4)));
  EXPECT_TRUE(all_reduced(multiplied_by(0.5)).equal(2 * expected_));
  EXPECT_TRUE(all_reduced(ReduceOp::BXOR, numbers(device()).to(torch::kLong))
                  .equal(torch::zeros({4}, torch::kLong)));
  EXPECT_TRUE(all_reduced(ReduceOp::SUM, numbers(device()) > 1).equal(expected_ > 1));
}

TEST_P(PretendedRanks, GatherCopiesAndScatterTheOwnPart) {
  torch::Tensor all = torch::empty({16}, device());
  torch::Tensor mine = numbers(device());
  (void)third_of_four_->_allgather_base(all, mine);
  EXPECT_TRUE(all.cpu().equal(expected_.repeat({4})));

  torch::Tensor part = torch::empty({1}, device());
  (void)third_of_four_->_reduce_scatter_base(part, mine);
  EXPECT_EQ(part.item<float>(), 4 * 2.0F);

  Tensors outputs{torch::empty({2}, device())};
  std::vector<Tensors> inputs{{mine.slice(0, 0, 2), mine.slice(0, 0, 2), mine.slice(0, 2, 4)}};
  inputs[0].push_back(mine.slice(0, 0, 2));
  (void)third_of_four_->reduce_scatter(outputs, inputs);
  EXPECT_TRUE(outputs[0].cpu().equal(4 * expected_.slice(0, 2, 4)));
}

TEST_P(PretendedRanks, SendEachOtherTheSame) {
  torch::Tensor received = torch::empty({4}, device());
  torch::Tensor mine = numbers(device());
  std::vector<std::int64_t> even;
  (void)third_of_four_->alltoall_base(received, mine, even, even);
  EXPECT_TRUE(received.cpu().equal(torch::full({4}, 2.0F)));
  // Parts with unknown content are zero.
  std::vector<std::int64_t> given{0, 1, 2, 1};
  std::vector<std::int64_t> taken{1, 1, 0, 2};
  (void)third_of_four_->alltoall_base(received, mine, taken, given);
  EXPECT_TRUE(received.cpu().equal(torch::tensor({0.0F, 0.0F, 1.0F, 2.0F})));
}

TEST_P(PretendedRanks, AnswerWithFuturesThatAreReady) {
  Tensors tensors{numbers(device())};
  const auto future = third_of_four_->allreduce(tensors)->getFuture();
  ASSERT_TRUE(future->completed());
  EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(tensors[0]));
}

TEST_P(PretendedRanks, AreUnseenByAutograd) {
  torch::Tensor x = numbers(device()).requires_grad_();
  torch::Tensor y = x * x;  // keeps x
  Tensors tensors{x.detach()};
  (void)third_of_four_->allreduce(tensors);
  EXPECT_NO_THROW(y.sum().backward());
}

TEST(PretendedRanksAlone, TakeWhatNcclTakesForLists) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto first = pretended_ranks(0, 4);
  Tensors inputs{torch::empty({1 << 20}, box.device(0))};
  std::vector<Tensors> outputs(1);
  for (int i = 0; i < 4; ++i) outputs[0].push_back(torch::empty_like(inputs[0]));
  const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
  box.card(0).reset_peaks();
  (void)first->allgather(outputs, inputs);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.peak - before, 16 << 20);
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, before);
}

TEST(PretendedRanksAlone, AreAtLeastOneAndCountedFromZero) {
  EXPECT_THROW((void)pretended_ranks(0, 0), UsageError);
  EXPECT_THROW((void)pretended_ranks(4, 4), UsageError);
  EXPECT_THROW((void)pretended_ranks(-1, 4), UsageError);
}

}  // namespace
}  // namespace headroom::parallel
