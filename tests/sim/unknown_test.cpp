// An unknown value on a card without data reads as one consistent zero. A check that all values are
// finite once read false, the guarded step was skipped, and the peak was five times too low.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

// Runs with few numbers, and with more than a card keeps values of.
class UnknownValues : public ::testing::TestWithParam<std::int64_t> {
 protected:
  [[nodiscard]] at::TensorOptions real() const {
    return at::TensorOptions(at::kFloat).device(box_.device(0));
  }
  [[nodiscard]] std::uint64_t decided() const { return box_.card(0).decided_by_unknown(); }
  Simulation box_ = simulate("1x24GiB");
  at::Tensor x_ = at::randn({GetParam(), 2}, real());
};

TEST_P(UnknownValues, AreFinite) {
  EXPECT_TRUE(at::isfinite(x_).all().item<bool>());
  EXPECT_TRUE((x_.abs() < 1e9).all().item<bool>());
  EXPECT_FALSE(at::isnan(x_).any().item<bool>());
  EXPECT_FALSE(at::isinf(x_).any().item<bool>());
  EXPECT_FALSE((~at::isfinite(x_)).any().item<bool>());
  EXPECT_EQ(at::isnan(x_).sum().item<std::int64_t>(), 0);
  EXPECT_EQ(decided(), 6U);
}

TEST_P(UnknownValues, AreZero) {
  EXPECT_TRUE((x_ == 0).all().item<bool>());
  EXPECT_FALSE((x_ > 0).any().item<bool>());
  EXPECT_FALSE(at::where(x_ == 0, x_, x_).any().item<bool>());
  EXPECT_EQ((x_ != 0).sum().item<std::int64_t>(), 0);
}

TEST_P(UnknownValues, AreAsCloseAndEqualAsZeros) {
  const at::Tensor other = at::randn_like(x_);
  EXPECT_TRUE(at::allclose(x_, other));
  EXPECT_TRUE(at::equal(x_, other));
  EXPECT_FALSE(at::equal(x_ == 0, other > 0));
  EXPECT_TRUE(at::equal(x_ == 0, other == 0));
  EXPECT_EQ(decided(), 4U);
}

TEST_P(UnknownValues, ReadTheSameOnTheHost) {
  const at::Tensor finite = at::isfinite(x_).cpu();
  EXPECT_TRUE(finite.all().item<bool>());
  EXPECT_EQ(box_.card(0).values_read_as_zero(), 1U);
  EXPECT_EQ(decided(), 0U) << "a copy decides nothing";
}

TEST_P(UnknownValues, ReadTheSameInACopiedAndInAWrittenMask) {
  at::Tensor finite = at::isfinite(x_).clone();
  EXPECT_TRUE(finite.all().item<bool>());
  finite.logical_and_(x_ < 1);
  EXPECT_TRUE(finite.all().item<bool>());
  finite.fill_(false);
  EXPECT_FALSE(finite.any().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(FewAndMany, UnknownValues, ::testing::Values(8, 1 << 18));

class UnknownNumbers : public ::testing::Test {
 protected:
  [[nodiscard]] at::TensorOptions real() const {
    return at::TensorOptions(at::kFloat).device(box_.device(0));
  }
  [[nodiscard]] at::Tensor loss() const { return at::randn({1 << 18}, real()).mean(); }
  Simulation box_ = simulate("1x24GiB");
};

TEST_F(UnknownNumbers, AloneReadAsTheResultOfZeros) {
  EXPECT_TRUE((loss() < INFINITY).item<bool>());
  EXPECT_EQ((loss() + 1).item<float>(), 1.0F);
  EXPECT_EQ(at::exp(loss()).item<float>(), 1.0F);
  EXPECT_TRUE((at::minimum(loss(), at::tensor(2.0F).to(box_.device(0))) == 0).item<bool>());
}

TEST_F(UnknownNumbers, StayFiniteWhereZerosGiveInfinity) {
  for (const at::Tensor& number : {at::log(loss()), 1 / loss(), loss() / loss()})
    EXPECT_TRUE(at::isfinite(number).item<bool>());
}

// Beams were not searched: where(ended, score, -1e9) read 0, which no running score is above.
TEST_F(UnknownNumbers, AreChosenIfTheyAreFew) {
  const at::Tensor scores = std::get<0>(at::randn({1 << 12, 4}, real()).topk(3)).slice(0, 0, 2);
  const at::Tensor ended = scores.amax(1) > 1, finished = scores.amin(1);
  EXPECT_TRUE((at::where(ended, finished, -1e9) < -1e8).all().item<bool>());
  EXPECT_TRUE((at::where(~ended, finished, -1e9) == 0).all().item<bool>());
  EXPECT_TRUE((finished.exp() == 0).all().item<bool>()) << "what is computed of several is zero";
}

TEST_F(UnknownNumbers, PassAssertions) {
  EXPECT_TRUE(at::_is_all_true(at::randn({1 << 18}, real()) > 0).item<bool>());
  EXPECT_EQ(box_.card(0).decided_by_unknown(), 0U);
  EXPECT_FALSE(at::_is_all_true(at::arange(3, real()) > 1).item<bool>());
}

TEST_F(UnknownNumbers, OfIntegersReadAsTheResultOfZeros) {
  const at::Tensor chosen = at::randn({4, 9}, real()).argmax(1);
  EXPECT_EQ((chosen + 3).sum().item<std::int64_t>(), 12);
  EXPECT_EQ(at::cat({at::arange(4, chosen.options()), chosen}).sum().item<std::int64_t>(), 6);
  at::Tensor counts = at::arange(4, chosen.options());
  counts.slice(0, 2).copy_(chosen.slice(0, 2));
  EXPECT_EQ(counts.sum().item<std::int64_t>(), 1) << "what was known besides is still read";
}

// The loop of a generation: what has ended is multiplied, and everything ends at the known length.
TEST_F(UnknownNumbers, GenerationEndsAtItsLength) {
  at::Tensor unfinished = at::ones({2}, real().dtype(at::kLong));
  int length = 0;
  for (; length < 20; ++length) {
    const at::Tensor next = at::randn({2, 50}, real()).argmax(-1);
    const at::Tensor ended = at::isin(next, at::full({1}, 7, next.options()));
    const at::Tensor too_long = at::full({2}, length == 9, ended.options());
    unfinished = unfinished.bitwise_and(~(ended | too_long));
    if ((unfinished.max() == 0).item<bool>()) break;
  }
  EXPECT_EQ(length, 9);
  EXPECT_EQ(box_.card(0).decided_by_unknown(), 9U) << "the last one is known";
}

// A scaler's factor was 0 after two steps: found_inf was not known, and so was all that follows.
TEST_F(UnknownNumbers, KeepAScalersScale) {
  at::Tensor scale = at::full({1}, 65536.0, real());
  at::Tensor growth = at::zeros({1}, real().dtype(at::kInt)), found = at::zeros({1}, real());
  const std::vector<at::Tensor> gradients{at::randn({1 << 18}, real())};
  for (int step = 0; step < 2; ++step) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, scale.reciprocal());
    EXPECT_EQ(found.item<float>(), 0.0F);
    at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 2);
  }
  EXPECT_EQ(scale.item<float>(), 131072.0F) << "two steps without an infinite gradient";
}

TEST_F(UnknownNumbers, NeverDecideAShape) {
  const at::Tensor finite = at::isfinite(at::randn({8}, real()));
  EXPECT_THROW((void)finite.nonzero(), c10::NotImplementedError);
  EXPECT_THROW((void)at::randn({8}, real()).index({finite}), c10::NotImplementedError);
}

TEST_F(UnknownNumbers, TakeNoMoreOfTheCardThanWithoutReading) {
  const at::Tensor x = at::randn({1 << 18}, real());
  const auto& now = [&] { return box_.card(0).statistics().allocated_bytes.all.current; };
  const std::int64_t before = now();
  const at::Tensor mask = x == 0;
  EXPECT_EQ(now() - before, 1 << 18);
}

}  // namespace
}  // namespace headroom::sim
