#include "headroom/train/split.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "staged_net.h"

namespace headroom::train::staged {
namespace {

TEST(EvenPieces, MakeTheLargestAsSmallAsPossible) {
  const auto cut = [](const std::vector<std::int64_t>& numbers, std::size_t pieces) {
    return even_pieces(numbers, pieces);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(cut({5, 5, 5, 5}, 2), ElementsAre(2, 2));
  EXPECT_THAT(cut({9, 1, 1, 1}, 2), ElementsAre(1, 3));
  EXPECT_THAT(cut({1, 1, 1, 9}, 3), ::testing::SizeIs(3));
  EXPECT_THAT(cut({0, 0, 0}, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(cut({7}, 1), ElementsAre(1));
  EXPECT_THROW(static_cast<void>(cut({7}, 2)), UsageError);
}

TEST(Split, RefusesWhatDoesNotGoTogether) {
  const sim::Simulation box = cards(4);
  const auto net = [] { return layers(2, torch::kFloat); };
  const std::vector<c10::Device> two{box.device(0), box.device(1)};
  EXPECT_THROW(Split(net(), {.devices = {}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .replicas = 3}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {4}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {4, 1}}), UsageError);
  EXPECT_THROW(Split(net(), {.devices = two, .modules = {0, 4}}), UsageError);
  torch::nn::Sequential shared(torch::nn::Linear(kHidden, kHidden));
  const torch::nn::Linear twice(kHidden, kHidden);
  shared->push_back(twice);
  shared->push_back(twice);
  EXPECT_THROW(Split(shared, {.devices = two, .modules = {2, 1}}), UsageError);
}

TEST(Split, NamesAreThoseOfTheWhole) {
  const sim::Simulation box = cards(3);
  const auto net = layers(4, torch::kFloat);
  std::vector<std::string> names;
  for (const auto& one : net->named_parameters()) names.push_back(one.key());
  Split split(net, {.devices = {box.device(0), box.device(1), box.device(2)}});
  std::vector<std::string> of_stages;
  for (std::size_t rank = 0; rank < split.ranks(); ++rank)
    for (const auto& one : split.stage(rank).named_parameters()) {
      of_stages.push_back(one.key());
      EXPECT_EQ(one->device(), box.device(static_cast<int>(rank)));
    }
  EXPECT_EQ(of_stages, names);
}

}  // namespace
}  // namespace headroom::train::staged
