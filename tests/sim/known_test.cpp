// On a card without data: what a program decides by is known as far as it was made from what is
// known, and never wrong.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

class KnownValues : public ::testing::Test {
 protected:
  [[nodiscard]] std::uint64_t guessed() const { return box_.card(0).values_read_as_zero(); }
  [[nodiscard]] at::TensorOptions whole() const {
    return at::TensorOptions(at::kLong).device(box_.device(0));
  }
  [[nodiscard]] at::TensorOptions real() const {
    return at::TensorOptions(at::kFloat).device(box_.device(0));
  }
  // Whole numbers that are not known.
  [[nodiscard]] at::Tensor unknown() const { return at::randn({4}, real()).to(at::kLong); }
  Simulation box_ = simulate("1x24GiB");
};

TEST_F(KnownValues, AMaskOfOnesIsKnown) {
  EXPECT_TRUE(at::ones({4, 128}, whole()).all().item<bool>());
  EXPECT_TRUE((at::ones({4, 128}, whole()) == 1).all().item<bool>());
  EXPECT_FALSE(at::zeros({4, 128}, whole()).any().item<bool>());
  EXPECT_EQ(guessed(), 0U);
}

TEST_F(KnownValues, ValuesFromTheHostAreKnown) {
  const at::Tensor mask = at::tensor({1, 1, 0}, at::kLong).to(box_.device(0));
  EXPECT_FALSE(mask.all().item<bool>());
  EXPECT_EQ(mask.sum().item<std::int64_t>(), 2);
  EXPECT_TRUE(at::equal(mask.cpu(), at::tensor({1, 1, 0}, at::kLong)));
  EXPECT_EQ(guessed(), 0U);
}

TEST_F(KnownValues, CountersAreKnown) {
  at::Tensor steps = at::zeros({}, whole());
  for (int i = 0; i < 5; ++i) steps.add_(1);
  EXPECT_EQ(steps.item<std::int64_t>(), 5);
  EXPECT_EQ(at::arange(10, whole()).cumsum(0)[9].item<std::int64_t>(), 45);
}

TEST_F(KnownValues, ShapesMayDependOnThem) {
  const at::Tensor chosen = (at::arange(10, whole()) % 3 == 0).nonzero();
  EXPECT_EQ(chosen.sizes(), (at::IntArrayRef{4, 1}));
  EXPECT_EQ(at::one_hot(at::arange(3, whole())).sizes(), (at::IntArrayRef{3, 3}));
}

TEST_F(KnownValues, ShapesThatDependOnUnknownOnesAreRefused) {
  const at::Tensor random = unknown();
  EXPECT_THROW((void)at::one_hot(random), c10::NotImplementedError);
  EXPECT_THROW((void)random.nonzero(), c10::NotImplementedError);
  const auto loss = [&](const at::Tensor& classes) {
    return at::cross_entropy_loss(at::randn({4, 9}, real()), classes, at::ones({9}, real()),
                                  at::Reduction::Mean, -100, 0.1);
  };
  EXPECT_EQ(loss(at::arange(4, whole())).dim(), 0);
  EXPECT_THROW((void)loss(random), c10::NotImplementedError);
}

TEST_F(KnownValues, ResultsOfRandomNumbersAreUnknown) {
  const at::Tensor logits = at::randn({8, 4}, real());
  EXPECT_EQ(logits.argmax(1)[0].item<std::int64_t>(), 0);
  EXPECT_EQ((logits > 0).all().item<bool>(), false);
  EXPECT_EQ((at::ones({8, 4}, real()) * logits).sum().item<float>(), 0.0F);
  EXPECT_EQ(guessed(), 3U);
}

TEST_F(KnownValues, ASmallScheduleOfFloatingNumbersIsKnown) {
  const at::Tensor drops = at::linspace(0, 0.3, 4, real());
  EXPECT_FLOAT_EQ(drops[3].item<float>(), 0.3F);
  EXPECT_EQ(at::ones({3}, real().dtype(at::kHalf)).sum().item<float>(), 3.0F);
  const at::Tensor causal = at::full({8, 8}, -INFINITY, real()).triu(1);
  EXPECT_TRUE((causal == at::full({8, 8}, -INFINITY, real()).triu(1)).all().item<bool>());
  EXPECT_EQ(guessed(), 0U);
}

// The CPU has no sums of eight bits: then it is not known, and nothing else is different.
TEST_F(KnownValues, ResultsThatTheCpuCannotComputeAreUnknown) {
  const at::Tensor eight = at::ones({4}, real()).to(at::kFloat8_e4m3fn);
  const at::Tensor copy = eight.clone();
  EXPECT_EQ(copy.sizes(), (at::IntArrayRef{4}));
  EXPECT_NO_THROW((void)at::embedding_bag(at::ones({6, 3}, real().dtype(at::kBFloat16)),
                                          at::arange(6, whole()), at::arange(2, whole())));
}

TEST_F(KnownValues, AWeightIsKnownUntilItIsTrained) {
  at::Tensor weight = at::ones({16}, real());
  EXPECT_EQ(weight.sum().item<float>(), 16.0F);
  weight.add_(at::randn({16}, real()));
  EXPECT_EQ(weight.sum().item<float>(), 0.0F);
  EXPECT_EQ(guessed(), 1U);
}

// Lengths that a batch function drew were zero, which packed sequences refuse.
TEST_F(KnownValues, FewWholeRandomNumbersAreDrawn) {
  const at::Tensor lengths = at::randint(5, 9, {4}, whole());
  EXPECT_GE(lengths.min().item<std::int64_t>(), 5);
  EXPECT_LT(lengths.max().item<std::int64_t>(), 9);
  EXPECT_EQ(at::randperm(9, whole()).sum().item<std::int64_t>(), 36);
  EXPECT_EQ(guessed(), 0U);
  EXPECT_EQ(at::randn({4}, real()).random_(5, 9).sum().item<float>(), 0.0F);
  EXPECT_EQ(guessed(), 1U);
}

TEST_F(KnownValues, TheSameSeedDrawsTheCpusNumbers) {
  at::Generator generator = box_.card(0).generator();
  generator.set_current_seed(7);
  const at::Tensor here = at::randint(0, 1000, {16}, whole());
  const at::Tensor there = at::randint(0, 1000, {16}, at::detail::createCPUGenerator(7), at::kLong);
  EXPECT_TRUE(here.cpu().equal(there));
}

TEST_F(KnownValues, WritingUnknownValuesForgetsThem) {
  at::Tensor mask = at::ones({4}, whole());
  const at::Tensor part = mask.slice(0, 2);
  mask.masked_fill_(at::randn({4}, real()) > 0, 0);
  EXPECT_EQ(mask.sum().item<std::int64_t>(), 4) << "zero is not above zero: nothing was filled";
  EXPECT_EQ(part.sum().item<std::int64_t>(), 2) << "and what shares its memory";
  EXPECT_EQ(guessed(), 2U);
  mask.fill_(3);
  EXPECT_EQ(mask.sum().item<std::int64_t>(), 12) << "overwritten, it is known again";
  mask.copy_(unknown());
  EXPECT_EQ(mask.sum().item<std::int64_t>(), 0);
}

TEST_F(KnownValues, MemoryMayBeFilledPartByPart) {
  const at::Tensor fresh = at::empty({4}, whole());
  fresh.slice(0, 0, 2).fill_(1);
  fresh.slice(0, 2, 4).copy_(at::tensor({5, 7}, at::kLong));
  EXPECT_EQ(fresh.sum().item<std::int64_t>(), 14);
  EXPECT_EQ(guessed(), 0U);
}

TEST_F(KnownValues, WritingAPartOfUnknownMemoryDoesNotMakeItKnown) {
  const at::Tensor random = unknown();
  const at::Tensor copied = at::empty({4}, whole());
  copied.copy_(random);
  for (const at::Tensor& one : {random, copied}) {
    one.slice(0, 0, 2).fill_(1);
    EXPECT_EQ(one.sum().item<std::int64_t>(), 2);
  }
  EXPECT_EQ(guessed(), 2U);
}

TEST_F(KnownValues, GrowingKeepsThem) {
  at::Tensor bytes = at::tensor({1, 2, 3}, at::kLong).to(box_.device(0));
  bytes.resize_({2000});
  EXPECT_EQ(bytes.slice(0, 0, 3).sum().item<std::int64_t>(), 6);
  at::Tensor schedule = at::ones({3}, real());
  schedule.resize_({6});
  EXPECT_EQ(schedule.slice(0, 0, 3).sum().item<float>(), 3.0F);
  EXPECT_EQ(guessed(), 0U);
}

// Forgotten values were known again, with whatever the host's memory held.
TEST_F(KnownValues, GrowingMakesNothingKnown) {
  at::Tensor numbers = at::ones({3}, real());
  numbers.add_(at::randn({3}, real()));
  numbers.resize_({6});
  EXPECT_EQ(numbers.storage().data(), nullptr);
}

TEST_F(KnownValues, GrowingFarTakesNoMemoryOfTheHost) {
  at::Tensor many = at::ones({3}, whole());
  many.resize_({1 << 20});
  EXPECT_EQ(many.storage().data(), nullptr);
}

TEST_F(KnownValues, AMaskMayBeAnIndex) {
  const at::Tensor x = at::randn({10, 3}, real());
  const at::Tensor mask = at::arange(10, whole()) % 3 == 0;
  EXPECT_EQ(x.index({mask}).sizes(), (at::IntArrayRef{4, 3}));
  EXPECT_EQ(x.index({mask, at::tensor(1, whole())}).sizes(), (at::IntArrayRef{4}));
  EXPECT_EQ(x.index({mask.unsqueeze(1).expand({10, 3})}).sizes(), (at::IntArrayRef{12}));
  at::Tensor written = at::zeros({10, 3}, real());
  EXPECT_NO_THROW(written.index_put_({mask}, x.slice(0, 0, 4)));
  EXPECT_THROW((void)x.index({x.select(1, 0) > 0}), c10::NotImplementedError);
  EXPECT_EQ(guessed(), 0U);
}

// As many places as the mask has true ones, a row each, while the operator runs.
TEST_F(KnownValues, AMaskAsAnIndexTakesTheMemoryOfItsPlaces) {
  const at::Tensor x = at::randn({1 << 16}, real());
  const at::Tensor mask = at::ones({1 << 16}, whole()).to(at::kBool);
  box_.card(0).reset_peaks();
  const std::int64_t before = box_.card(0).statistics().allocated_bytes.all.current;
  const at::Tensor chosen = x.index({mask});
  EXPECT_EQ(box_.card(0).statistics().allocated_bytes.all.peak - before, (8 + 4) << 16);
  EXPECT_EQ(box_.card(0).statistics().allocated_bytes.all.current - before, 4 << 16);
}

TEST_F(KnownValues, LargeTensorsAreNotKept) {
  const at::Tensor large = at::ones({1 << 20}, whole());
  EXPECT_EQ(large.storage().data(), nullptr);
  EXPECT_NE(at::ones({1 << 10}, whole()).storage().data(), nullptr);
}

// A graph of 100,000 edges stopped at index.Tensor: its mask of loops was not known.
TEST_F(KnownValues, WholeNumbersOfTheHostAreKnownUpTo16Mebibytes) {
  const std::int64_t edges = 500'000;
  const at::Tensor graph = at::arange(2 * edges).view({2, edges}).to(box_.device(0));
  const at::Tensor no_loops = graph[0] != graph[1];
  EXPECT_EQ(graph.index({at::indexing::Slice(), no_loops}).sizes(), (at::IntArrayRef{2, edges}));
  EXPECT_EQ((graph[0] < 10).nonzero().sizes(), (at::IntArrayRef{10, 1}));
  EXPECT_EQ(guessed(), 0U);
}

TEST_F(KnownValues, OtherTensorsOfTheHostAreNotKept) {
  EXPECT_EQ(at::zeros({(16 << 20) + 1}, at::kBool).to(box_.device(0)).storage().data(), nullptr);
  EXPECT_EQ(at::zeros({1 << 20}, at::kChar).to(box_.device(0)).storage().data(), nullptr)
      << "weights of 8 bits";
  EXPECT_EQ(at::zeros({1 << 20}).to(box_.device(0)).storage().data(), nullptr) << "no index";
}

// The step counters of AdamW on a card were forgotten: its bias correction divided by zero.
TEST_F(KnownValues, ListsOfThemAreKnownUnderForeachOperators) {
  const std::vector<at::Tensor> steps{at::zeros({}, real()), at::zeros({}, real())};
  at::_foreach_add_(steps, 1);
  at::_foreach_mul_(steps, 3);
  const std::vector<at::Tensor> powers = at::_foreach_pow(2, steps);
  EXPECT_EQ(powers[1].item<float>(), 8.0F);
  EXPECT_EQ(guessed(), 0U);
}

TEST_F(KnownValues, DecideAloneIfTheOtherArgumentDoesNotMatter) {
  const at::Tensor yes = at::ones({4}, whole()) == 1, no = ~yes, doubt = at::randn({4}, real()) > 0;
  EXPECT_TRUE((doubt | yes).all().item<bool>());
  EXPECT_TRUE(at::logical_or(yes, doubt).all().item<bool>());
  EXPECT_FALSE((no & doubt).any().item<bool>());
  EXPECT_EQ((unknown() * at::zeros({4}, whole())).sum().item<std::int64_t>(), 0);
  EXPECT_EQ((doubt & no).nonzero().sizes(), (at::IntArrayRef{0, 1}));
  EXPECT_EQ(guessed(), 0U);
  EXPECT_FALSE((doubt & yes).any().item<bool>());
  EXPECT_EQ(guessed(), 1U);
}

// sparse_coo_tensor(...).to_dense() was a matrix of zeros, as if it were known.
TEST_F(KnownValues, SparseTensorsOfThemBecomeDense) {
  const at::Tensor places = torch::tensor({{0, 2}, {1, 0}}, at::kLong).to(box_.device(0));
  const at::Tensor dense = at::sparse_coo_tensor(places, at::ones({2}, real()), {3, 3}).to_dense();
  EXPECT_EQ(dense.sum().item<float>(), 2.0F);
  EXPECT_EQ(dense[2][0].item<float>(), 1.0F);
  EXPECT_EQ(guessed(), 0U);
  (void)at::sparse_coo_tensor(places, at::randn({2}, real()), {3, 3}).to_dense().sum().item();
  EXPECT_EQ(guessed(), 1U);
}

// Where rows meet is known of known places; SparseAdam needs no more.
TEST_F(KnownValues, SparseGradientsAreCoalescedByTheirIndices) {
  const at::Tensor places = torch::tensor({{3, 1, 3}}, at::kLong).to(box_.device(0));
  const at::Tensor summed =
      at::sparse_coo_tensor(places, at::randn({3, 5}, real()), {9, 5}).coalesce();
  EXPECT_EQ(summed.values().sizes(), (at::IntArrayRef{2, 5}));
  EXPECT_TRUE(summed.indices().cpu().equal(torch::tensor({{1, 3}}, at::kLong)));
}

TEST_F(KnownValues, WeightsMadeInComputeModeStay) {
  box_.card(0).set_mode(Mode::compute);
  at::Tensor weight = at::full({3}, 2.0, real());
  box_.card(0).set_mode(Mode::shape_only);
  weight.add_(1);
  box_.card(0).set_mode(Mode::compute);
  EXPECT_EQ(weight.sum().item<float>(), 6.0F);
}

}  // namespace
}  // namespace headroom::sim
