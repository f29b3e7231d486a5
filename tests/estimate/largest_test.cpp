// Steps whose bytes are counted by hand. PyTorch's allocator gives a request of 10 MiB and more a
// segment of its own, in whole steps of 2 MiB; of 1 MiB and more, a part of a segment of 20 MiB;
// of less, a part of one of 2 MiB.
#include "headroom/estimate/largest.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "tests/estimate/card_of.h"

namespace headroom::estimate {
namespace {

using namespace literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::SizeIs;

// A step that takes so many bytes at once, beside what stays.
std::function<dryrun::MakeSubject(std::int64_t)> steps_of(
    const std::function<std::vector<Bytes>(std::int64_t)>& bytes_of, Bytes stays = 20_MiB) {
  return [bytes_of, stays](std::int64_t size) -> dryrun::MakeSubject {
    return [bytes_of, stays, size](c10::Device device) {
      const auto take = [device](Bytes bytes) {
        return torch::empty({bytes.count}, torch::device(device).dtype(torch::kByte));
      };
      const torch::Tensor weights = take(stays);
      return dryrun::Subject{.step = [take, bytes_of, size, weights] {
        std::vector<torch::Tensor> taken;
        for (const Bytes bytes : bytes_of(size)) taken.push_back(take(bytes));
      }};
    };
  };
}

void expect_proven(const Largest& found, std::int64_t size) {
  EXPECT_EQ(found.size, size);
  EXPECT_TRUE(found.is_proven);
  EXPECT_LE(found.probes.size(), std::size_t{kMostProbes});
  EXPECT_THAT(found.probes, testing::Contains(testing::AllOf(Field(&Probe::size, size),
                                                             Field(&Probe::fits, true))));
  EXPECT_THAT(found.probes, testing::Contains(testing::AllOf(Field(&Probe::size, size + 1),
                                                             Field(&Probe::fits, false))));
}

// ---- Counted by hand

TEST(FindLargest, MatchesTheByteCountOfALinearLayerWithSgd) {
  // Weight [4096, 4096] in float: 64 MiB, and its gradient 64. A row of the input [512, 4096]: 8,
  // of the output 8; the output is gone when its gradient, as large, is made. Each part is a
  // segment of its own, and the loss lies in one of 2 MiB: 130 + 16 n MiB in all. 16 GiB = 16384
  // MiB, so n = (16384 - 130) / 16 = 1015, and 14 MiB are left.
  const auto step_of = [](std::int64_t rows) -> dryrun::MakeSubject {
    return [rows](c10::Device device) {
      const auto net = libtorch::on(device, [] {
        return std::make_shared<torch::nn::LinearImpl>(
            torch::nn::LinearOptions(4096, 4096).bias(false));
      });
      const auto sgd = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
      const auto x = torch::empty({rows, 512, 4096}, torch::device(device));
      return dryrun::Subject{.step = [net, sgd, x] {
        sgd->zero_grad();
        net->forward(x).sum().backward();
        sgd->step();
      }};
    };
  };
  expect_proven(find_largest({}, step_of, card_of(16_GiB)), 1015);
  expect_proven(find_largest({}, step_of, card_of(16_GiB - 14_MiB)), 1015);
  expect_proven(find_largest({}, step_of, card_of(16_GiB - 15_MiB)), 1014);
}

TEST(FindLargest, CountsTheAllocatorsRoundingTo2MiB) {
  // Weights 20 MiB; n times 3 MB in one piece, rounded up to 2 MiB: 27 times 3 MB are 77.25 MiB,
  // so 78, and with the weights 98; 28 are 80.11, so 82, and 102.
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{Bytes{n * 3'000'000}}; });
  expect_proven(find_largest({}, step_of, card_of(100_MiB)), 27);
  expect_proven(find_largest({}, step_of, card_of(98_MiB)), 27);
  expect_proven(find_largest({}, step_of, card_of(98_MiB - 1_B)), 26);
}

TEST(FindLargest, CountsThePoolsOfSmallBlocks) {
  // Weights 20 MiB. n pieces of 600 KiB: three in a segment of 2 MiB, so 2 * ceil(n / 3) MiB.
  // 40 MiB leave 20: ten segments, 30 pieces. Their number grows with n, so runs differ in more
  // than sizes.
  const auto step_of = steps_of(
      [](std::int64_t n) { return std::vector<Bytes>(static_cast<std::size_t>(n), 600_KiB); });
  expect_proven(find_largest({}, step_of, card_of(40_MiB)), 30);
}

// ---- What grows in other ways

TEST(FindLargest, FindsTheLimitOfQuadraticGrowth) {
  // 20 + n * n MiB, n >= 4.
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * n * 1_MiB}; });
  const Largest found = find_largest({.first = 8, .growth = {.power = 2}}, step_of, card_of(1_GiB));
  expect_proven(found, 31);  // 961 is rounded to 962; 1024 - 20 = 1004 < 32 * 32
}

TEST(FindLargest, FindsTheLimitWhereTwoPeaksAlternate) {
  // The greater of 400 MiB, whatever the size, and 11 MiB a row.
  const auto step_of =
      steps_of([](std::int64_t n) { return std::vector{std::max(400_MiB, n * 11_MiB)}; });
  expect_proven(find_largest({}, step_of, card_of(2_GiB)), 184);  // 2024 of 2028 MiB
}

// ---- Bounds

TEST(FindLargest, IsNothingWhenTheSmallestDoesNotFit) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({}, step_of, card_of(25_MiB));
  EXPECT_EQ(found.size, std::nullopt);
  EXPECT_EQ(found.recommended, std::nullopt);
  EXPECT_FALSE(found.capped);
  EXPECT_THAT(found.probes, testing::Contains(Field(&Probe::size, 1)));
  EXPECT_THAT(found.probes, Each(Field(&Probe::fits, false)));
  // A probe that does not fit reports how much it needs.
  EXPECT_EQ(found.probes.back().peak_reserved, 30_MiB);
}

TEST(FindLargest, IsNothingWhenNotEvenTheModelFits) {
  const auto step_of = steps_of([](std::int64_t) { return std::vector{1_MiB}; });
  EXPECT_EQ(find_largest({}, step_of, card_of(10_MiB)).size, std::nullopt);
}

TEST(FindLargest, StopsAtTheLargestThatIsAskedFor) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({.at_most = 12}, step_of, card_of(1_GiB));
  EXPECT_EQ(found.size, 12);
  EXPECT_TRUE(found.capped);
  EXPECT_TRUE(found.is_proven);
  EXPECT_LE(found.probes.back().size, 12);
  EXPECT_EQ(find_largest({.at_most = 1}, step_of, card_of(1_GiB)).size, 1);
  EXPECT_FALSE(find_largest({.at_most = 101}, step_of, card_of(1_GiB)).capped);  // 100 fit
}

TEST(FindLargest, TriesNothingBelowTheSmallestThatIsAskedFor) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({.at_least = 7}, step_of, card_of(95_MiB));
  EXPECT_EQ(found.size, 7);
  EXPECT_EQ(find_largest({.at_least = 8}, step_of, card_of(95_MiB)).size, std::nullopt);
  EXPECT_THAT(found.probes, Each(Field(&Probe::size, testing::Ge(7))));
}

TEST(FindLargest, RefusesBoundsAndMarginsThatMakeNoSense) {
  const auto step_of = steps_of([](std::int64_t) { return std::vector{1_MiB}; });
  const gpu::SimulatedCard card = card_of(1_GiB);
  EXPECT_THROW(static_cast<void>(find_largest({.at_least = 0}, step_of, card)), UsageError);
  EXPECT_THROW(static_cast<void>(find_largest({.at_least = 3, .at_most = 2}, step_of, card)),
               UsageError);
  EXPECT_THROW(static_cast<void>(find_largest({}, step_of, card, {.share = 1})), UsageError);
  EXPECT_THROW(static_cast<void>(find_largest({}, step_of, card, {.bytes = Bytes{-1}})),
               UsageError);
}

TEST(FindLargest, PassesOnExceptionsOfAStep) {
  const auto step_of = [](std::int64_t) -> dryrun::MakeSubject {
    return [](c10::Device) -> dryrun::Subject { throw UsageError("no such size"); };
  };
  EXPECT_THROW(static_cast<void>(find_largest({}, step_of, card_of(1_GiB))), UsageError);
}

// ---- Margins

TEST(RecommendedSize, IsAShareLessAndAtLeastOne) {
  EXPECT_EQ(less_share(100, 0.07), 93);
  EXPECT_EQ(less_share(10, 0.1), 9);
  EXPECT_EQ(less_share(19, 0.1), 17);
  EXPECT_EQ(less_share(1, 0.1), 1);
  EXPECT_EQ(less_share(7, 0), 7);
}

// The largest that was asked about was 512, 460 were recommended, and 512 used 1 % of the card.
TEST(RecommendedSize, IsTheUpperBoundIfThatLeavesTheShareFree) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({.at_most = 50}, step_of, card_of(1_GiB));
  EXPECT_TRUE(found.capped);
  EXPECT_EQ(found.recommended, 50);
  EXPECT_EQ(find_largest({.at_most = 95}, step_of, card_of(1_GiB)).recommended, 85)
      << "970 of 1024 MiB leave less than a tenth";
}

TEST(RecommendedSize, LeavesTheBytesOfAMarginFreeAndIsProbed) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({}, step_of, card_of(1_GiB), {.bytes = 255_MiB});
  EXPECT_EQ(found.size, 100);
  EXPECT_EQ(found.recommended, 74);  // 20 + 740 of 769 MiB; 75 would leave 254
  EXPECT_THAT(found.probes, testing::Contains(testing::AllOf(
                                Field(&Probe::size, 74), Field(&Probe::peak_reserved, 760_MiB))));
}

TEST(RecommendedSize, IsNothingWhereTheMarginLeavesNoRoom) {
  const auto step_of = steps_of([](std::int64_t n) { return std::vector{n * 10_MiB}; });
  const Largest found = find_largest({}, step_of, card_of(1_GiB), {.bytes = 1000_MiB});
  EXPECT_EQ(found.size, 100);
  EXPECT_EQ(found.recommended, std::nullopt);
}

}  // namespace
}  // namespace headroom::estimate
