// What `headroom train` trains on several cards, made on simulated ones that run out of memory
// meanwhile.
#include "headroom/base/error.h"
#include "headroom/config/training_keys.h"
#include "headroom/recipe/recipe.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/retry.h"
#include "headroom/train/step.h"
#include "nets.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace headroom::train {
namespace {

class RecipeTeam : public ::testing::Test {
 protected:
  [[nodiscard]] static config::Training training(const std::vector<std::string>& more = {}) {
    std::vector<std::string> settings{"model=gpt-tiny", "dataset=synthetic"};
    settings.insert(settings.end(), more.begin(), more.end());
    return config::Training(config::resolve(config::training_keys(), {.overrides = settings}));
  }
  [[nodiscard]] std::vector<c10::Device> cards(int count) const {
    std::vector<c10::Device> all;
    for (int card = 0; card < count; ++card) all.push_back(box_.device(card));
    return all;
  }
  // Values on the host, by rank.
  [[nodiscard]] static Tensors values(const recipe::Model& model) {
    Tensors all;
    for (const auto& rank : model.ranks)
      for (const at::Tensor& one : rank->module().parameters()) all.push_back(one.detach().cpu());
    return all;
  }

  const sim::Simulation box_ = sim::simulate("4x1GiB", {.mode = sim::Mode::compute});
};

TEST_F(RecipeTeam, IsMadeAfterAnOutOfMemoryAtAnyRequestOfAnyCard) {
  const config::Training four = training({"replicas=2", "stages=2"});
  const Tensors right = values(recipe::model_of(four, cards(4)));
  for (int card = 0; card < 4; ++card) {
    std::uint64_t request = 1;
    for (bool failed = true; failed; ++request) {
      SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
      const sim::Happened happened;
      const sim::InjectionScope scope(box_.card(card), sim::noted(sim::once(request), happened));
      const recipe::Model made = retry_on_oom([&] { return recipe::model_of(four, cards(4)); });
      failed = happened.at_all();
      expect_same(values(made), right);
    }
    EXPECT_GT(request, 10U);
  }
}

TEST_F(RecipeTeam, ThatCannotBeMadeLeavesTheCardsEmpty) {
  const config::Training four = training({"replicas=2", "stages=2"});
  const sim::InjectionScope scope(box_.card(3), sim::lasting(4));
  EXPECT_THROW(static_cast<void>(recipe::model_of(four, cards(4))), c10::OutOfMemoryError);
  for (int card = 0; card < 4; ++card)
    EXPECT_EQ(box_.card(card).statistics().allocated_bytes.all.current, 0);
}

// Replicas drop other elements, and stages those of other layers.
TEST_F(RecipeTeam, BeginsWithTheValuesOfOneCardAndDrawsOtherNumbersOnEach) {
  const auto model = recipe::model_of(training({"replicas=2", "stages=2"}), cards(4));
  const auto whole = recipe::model_of(training(), cards(1));
  const auto right = whole.ranks[0]->module().named_parameters();
  for (const auto& rank : model.ranks)
    for (const auto& one : rank->module().named_parameters())
      EXPECT_TRUE(torch::equal(one->detach().cpu(), right[one.key()].detach().cpu())) << one.key();
  for (int card = 1; card < 4; ++card)
    EXPECT_FALSE(torch::equal(torch::rand({8}, box_.device(card)).cpu(),
                              torch::rand({8}, box_.device(0)).cpu()));
}

TEST_F(RecipeTeam, OfOneIsMadeOnTheCpuOfSeveralIsNot) {
  const c10::Device cpu("cpu");
  EXPECT_EQ(recipe::model_of(training(), {cpu}).ranks.size(), 1U);
  EXPECT_THROW(static_cast<void>(recipe::model_of(training({"replicas=2"}), {cpu, cpu})),
               UsageError);
}

TEST_F(RecipeTeam, RefusesAnotherNumberOfDevices) {
  EXPECT_THROW(static_cast<void>(recipe::model_of(training({"replicas=2"}), cards(3))), UsageError);
}

// Sixteen rows of two stages and two replicas: four parts of two rows, and at least those of
// min_batch_size.
TEST_F(RecipeTeam, PartsKeepStagesAtWork) {
  const auto parts = [](const std::vector<std::string>& more) {
    return recipe::step_options_of(training(more), 1).plan.micro_batch;
  };
  EXPECT_EQ(parts({"batch_size=64"}), 64);
  EXPECT_EQ(parts({"batch_size=64", "replicas=4"}), 16);
  EXPECT_EQ(parts({"batch_size=64", "stages=2"}), 8);
  EXPECT_EQ(parts({"batch_size=64", "stages=2", "replicas=2"}), 4);
  EXPECT_EQ(parts({"batch_size=16", "stages=2"}), 4);
  EXPECT_EQ(parts({"batch_size=16", "stages=2", "min_batch_size=1"}), 2);
  EXPECT_EQ(parts({"batch_size=2", "stages=2", "gradient_accumulation_steps=64"}), 2);
}

}  // namespace
}  // namespace headroom::train
