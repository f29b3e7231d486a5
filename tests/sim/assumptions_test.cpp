// Where the shape of a result depends on unknown values, a card that may assume some goes on, and
// all sizes from one mask agree.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

class Listener final : public Observer {
 public:
  void on_operator(const OperatorCall&) override {}
  void on_event(const allocator::AllocatorEvent&) override {}
  void on_assumption(std::string_view what) override { ++told[std::string(what)]; }
  std::map<std::string, int> told;
};

class Assumptions : public ::testing::Test {
 protected:
  Assumptions() { box_.card(0).set_assume_true(0.5); }
  [[nodiscard]] at::TensorOptions on_card(at::ScalarType type = at::kFloat) const {
    return at::TensorOptions(type).device(box_.device(0));
  }
  [[nodiscard]] at::Tensor unknown(at::IntArrayRef sizes) const {
    return at::randn(sizes, on_card());
  }
  Simulation box_ = simulate("1x24GiB");
};

TEST_F(Assumptions, ACardAssumesNothingUnlessItMay) {
  box_.card(0).set_assume_true({});
  EXPECT_THROW((void)(unknown({4}) > 0).nonzero(), c10::NotImplementedError);
  EXPECT_EQ(box_.card(0).assumptions(), 0U);
}

TEST_F(Assumptions, AllSizesFromOneMaskAgree) {
  for (const double share : {0.0, 0.3, 0.5, 1.0}) {
    box_.card(0).set_assume_true(share);
    const at::Tensor x = unknown({10, 7});
    const at::Tensor mask = x.select(1, 0) > 0;
    const std::int64_t rows = x.index({mask}).size(0);
    EXPECT_EQ(rows, static_cast<std::int64_t>(std::ceil(share * 10)));
    EXPECT_EQ(mask.nonzero().size(0), rows);
    EXPECT_EQ(mask.sum().item<std::int64_t>(), rows);
    EXPECT_EQ((~mask).nonzero().size(0), 10 - rows);
    EXPECT_EQ(at::masked_select(x, mask.unsqueeze(1)).size(0), rows * 7);
    EXPECT_EQ(at::where(mask)[0].size(0), rows);
    x.index_put_({mask}, unknown({rows, 7}));
  }
}

// torchvision's Faster R-CNN ended at torch.where(mask) of bytes, whatever share was assumed: a
// card keeps no large tensor of bytes, so it could not give the mask values.
TEST_F(Assumptions, AMaskOfAnyTypeIsAssumedAlike) {
  const std::int64_t rows = (1 << 17) + 10, half = rows / 2;
  const at::Tensor x = unknown({rows});
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt}) {
    const at::Tensor mask = (x > 0).to(type);
    EXPECT_EQ(at::where(mask)[0].size(0), half) << type;
    EXPECT_EQ(mask.nonzero().size(0), half) << type;
    EXPECT_EQ(at::argwhere(mask).size(0), half) << type;
    EXPECT_EQ((mask != 0).sum().item<std::int64_t>(), half) << type;
    EXPECT_EQ(mask.nonzero().max().item<std::int64_t>(), 2 * (half - 1)) << "places are spread";
  }
  const at::Tensor bytes = (x > 0).to(at::kByte);
  EXPECT_EQ(x.index({bytes}).size(0), half);
  x.index_put_({bytes}, unknown({half}));
}

// Of numbers, and of masks that are too large to keep, only the count is assumed.
TEST_F(Assumptions, WhatIsTooLargeToKeepStillHasACount) {
  EXPECT_EQ(unknown({(1 << 17) + 10}).nonzero().size(0), (1 << 16) + 5);
  const std::int64_t side = 1 << 13;  // 64 MiB of booleans
  const at::Tensor x = unknown({side, side}), mask = x > 0;
  EXPECT_EQ(mask.nonzero().sizes(), (at::IntArrayRef{side * side / 2, 2}));
  EXPECT_EQ(at::where(mask)[1].size(0), side * side / 2);
  EXPECT_EQ(x.index({mask}).size(0), side * side / 2);
  EXPECT_EQ(at::masked_select(x, mask).size(0), side * side / 2);
  EXPECT_EQ(at::masked_select(x, (unknown({side, 1}) > 0).expand({side, side})).size(0),
            side * side / 2);
  box_.card(0).set_assume_true({});
  EXPECT_THROW((void)mask.nonzero(), c10::NotImplementedError);
}

TEST_F(Assumptions, RoutingIsBalanced) {
  const at::Tensor experts = std::get<1>(unknown({64, 8}).topk(2, -1));
  EXPECT_EQ(experts.sizes(), (at::IntArrayRef{64, 2}));
  const at::Tensor each = at::one_hot(experts.reshape(-1), 8).sum(0).cpu();
  EXPECT_TRUE(at::equal(each, at::full({8}, 16, at::kLong)));
  EXPECT_EQ(at::bincount(experts.reshape(-1), {}, 8).sum().item<std::int64_t>(), 128);
  for (int expert = 0; expert < 8; ++expert) EXPECT_EQ((experts == expert).nonzero().size(0), 16);
  // No token has an expert twice.
  EXPECT_FALSE((experts.select(1, 0) == experts.select(1, 1)).any().item<bool>());
}

TEST_F(Assumptions, PlacesAreWithinTheDimensionWhateverItIs) {
  const at::Tensor x = unknown({3, 5, 7});
  for (const std::int64_t dim : {0, 1, 2, -1}) {
    const std::int64_t size = x.size(dim);
    const at::Tensor top = std::get<1>(x.topk(2, dim));
    EXPECT_LT(top.max().item<std::int64_t>(), size);
    EXPECT_LT(x.argmax(dim).max().item<std::int64_t>(), size);
    EXPECT_LT(std::get<1>(x.max(dim)).max().item<std::int64_t>(), size);
    const at::Tensor order = std::get<1>(x.sort(dim)).cpu();
    EXPECT_TRUE(at::equal(std::get<0>(order.sort(dim)), order));  // each place once
  }
  EXPECT_LT(x.argmax().item<std::int64_t>(), x.numel());
  EXPECT_LT(at::multinomial(at::rand({4, 9}, on_card()), 3).max().item<std::int64_t>(), 9);
}

TEST_F(Assumptions, DifferentValuesAreAShare) {
  const at::Tensor x = unknown({10}).to(at::kLong);
  const auto [values, inverse, counts] = at::_unique2(x, true, true, true);
  EXPECT_EQ(values.size(0), 5);
  EXPECT_EQ(inverse.size(0), 10);
  EXPECT_EQ(counts.sum().item<std::int64_t>(), 10);
  EXPECT_EQ(at::repeat_interleave(unknown({6}).to(at::kLong)).size(0), 6);
}

TEST_F(Assumptions, EachIsCountedAndTold) {
  Listener listener;
  box_.card(0).observe(&listener);
  (void)(unknown({8}) > 0).nonzero();
  (void)unknown({8}).argsort();
  box_.card(0).observe(nullptr);
  EXPECT_EQ(box_.card(0).assumptions(), 2U);
  EXPECT_EQ(listener.told["nonzero: a share of 0.5 of the mask is true"], 1);
  EXPECT_EQ(listener.told["sort: the places are spread evenly"] +
                listener.told["argsort: the places are spread evenly"],
            1);
}

// A value that is only read stays one zero: guards against NaN and infinity pass.
TEST_F(Assumptions, ValuesThatAreOnlyReadAreZero) {
  for (const double share : {0.0, 0.5, 1.0}) {
    box_.card(0).set_assume_true(share);
    const at::Tensor x = unknown({16});
    EXPECT_TRUE(x.isfinite().all().item<bool>());
    EXPECT_FALSE(x.isnan().any().item<bool>());
    EXPECT_EQ(x.isnan().sum().item<std::int64_t>(), 0);
    EXPECT_TRUE(at::allclose(x, unknown({16})));
    EXPECT_EQ(x.sum().item<float>(), 0.0F);
    EXPECT_FALSE((x.mean() > 100).item<bool>());
  }
}

// What the program itself made is never assumed.
TEST_F(Assumptions, KnownValuesStay) {
  const at::Tensor mask = at::tensor({1, 0, 0}, at::kLong).to(at::kBool).to(box_.device(0));
  EXPECT_EQ(unknown({3}).index({mask}).size(0), 1);
  EXPECT_EQ(at::arange(5, on_card(at::kLong)).argmax().item<std::int64_t>(), 4);
  EXPECT_EQ(box_.card(0).assumptions(), 0U);
}

}  // namespace
}  // namespace headroom::sim
