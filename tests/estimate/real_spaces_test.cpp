// The search over plans with prices of real models, against a list of all plans with the same
// prices; and the best plan's prices against steps of its whole team. HEADROOM_PLAN_SPACES sets the
// number of random questions; 2 without it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "headroom/base/text.h"
#include "headroom/config/resolved.h"
#include "headroom/config/training_keys.h"
#include "headroom/estimate/price_stages.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/search.h"
#include "headroom/recipe/recipe.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"
#include "tests/plan/enumerate_plans.h"

namespace headroom::estimate {
namespace {

namespace fs = std::filesystem;
using Keys = std::vector<std::string>;

int number_of_spaces() {
  const char* const text = std::getenv("HEADROOM_PLAN_SPACES");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? 2 : std::stoi(text);
}

class RealSpace {
 public:
  explicit RealSpace(unsigned seed)
      : folder_(fs::path(::testing::TempDir()) / ("space" + std::to_string(seed))), draw_(seed) {
    fs::remove_all(folder_);  // with its prices
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << model();
    question_.rows = between(4, 9);
    keys_ = {"model=full",
             "model.config=" + (folder_ / "config.json").string(),
             "dataset=synthetic",
             "weights=random",
             "seq=32",
             "num_workers=0",
             "optimizer=adamw",
             "batch_size=" + std::to_string(question_.rows)};
    if (between(0, 1) == 1) keys_.emplace_back("dtype=bfloat16");
    // Cards that hold a part of the model, or a little more than all of it.
    const auto layers = training({}).model.config.at_least_1(
        training({}).model.config.type() == "gpt2" ? "n_layer" : "num_hidden_layers");
    plan::ModelPricer prices = pricer();
    const plan::StageMemory whole = prices.exact({.form = {.rows = question_.rows},
                                                  .first = 0,
                                                  .count = layers,
                                                  .parts = 1,
                                                  .rows = question_.rows});
    const auto share = [&](Bytes bytes) { return Bytes{bytes.count * between(45, 115) / 100}; };
    for (std::int64_t card = between(2, 3); card > 0; --card)
      question_.cards.push_back(
          {.kind = 0, .resident = share(whole.resident), .reserved = share(whole.reserved)});
  }

  [[nodiscard]] const plan::SearchQuestion& question() const { return question_; }
  [[nodiscard]] config::Training training(const Keys& more) const {
    Keys all = keys_;
    all.insert(all.end(), more.begin(), more.end());
    return config::Training(config::resolve(config::training_keys(), {.overrides = all}));
  }
  [[nodiscard]] plan::ModelPricer pricer() const {
    const config::Training plain = training({});
    const auto prices = std::make_shared<StagePrices>(
        plain, std::vector{gpu::SimulatedCard{.name = "card", .total = Bytes{8LL << 30}}},
        allocator::Settings{});
    std::vector<plan::PricedTraining> trainings;
    trainings.push_back({plain.settings, plan::PriceBook(Json::object(), folder_ / "prices")});
    return {plain.model.config,
            std::move(trainings),
            {{&gpu::card_named("RTX 4090")}, std::vector<int>(8, 0)},
            [prices](const plan::Stage& stage) { return prices->of(stage); }};
  }

 private:
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(draw_);
  }
  Json model() {
    const std::int64_t width = 32 * between(2, 4), layers = between(3, 5),
                       words = 64 * between(2, 8);
    if (between(0, 1) == 0)
      return {{"model_type", "gpt2"}, {"n_layer", layers},   {"n_embd", width},
              {"n_head", 4},          {"vocab_size", words}, {"n_positions", 64}};
    return {{"model_type", "llama"},          {"num_hidden_layers", layers}, {"hidden_size", width},
            {"intermediate_size", 3 * width}, {"num_attention_heads", 4},    {"vocab_size", words},
            {"max_position_embeddings", 64}};
  }

  const fs::path folder_;
  std::mt19937 draw_;
  Keys keys_;
  plan::SearchQuestion question_;
};

Keys keys_of(const plan::Placement& plan) {
  Keys layers, again;
  for (const plan::PlacedStage& stage : plan.stages)
    layers.push_back(std::to_string(stage.stage.count));
  for (const int stage : plan.checkpointed()) again.push_back(std::to_string(stage));
  Keys keys{"micro_batch=" + std::to_string(plan.form.rows),
            "replicas=" + std::to_string(plan.form.replicas)};
  if (layers.size() > 1) keys.push_back("split=" + join(layers, ","));
  if (again.size() == layers.size())
    keys.emplace_back("gradient_checkpointing=true");
  else if (!again.empty())
    keys.push_back("checkpointed_stages=" + join(again, ","));
  return keys;
}

// The third step of the whole team takes what its stages were priced at, alone.
void expect_steps_of(const RealSpace& space, const plan::Placement& plan) {
  SCOPED_TRACE(join(keys_of(plan), " "));
  const config::Training training = space.training(keys_of(plan));
  const int cards = training.sharing.cards();
  const sim::Simulation box = sim::simulate(std::to_string(cards) + "x8GiB");
  std::vector<c10::Device> devices;
  for (int card = 0; card < cards; ++card) devices.push_back(box.device(card));
  recipe::Recipe recipe = recipe::make(training, devices);
  recipe.step.prices = recipe.step.adapts = false;
  train::Step step(recipe.team, recipe.step);
  for (int i = 0; i < 3; ++i) static_cast<void>(step.run(recipe.batches.next()));
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    const allocator::Statistics now = box.card(static_cast<int>(stage)).statistics();
    EXPECT_EQ(Bytes{now.reserved_bytes.all.peak}, plan.stages[stage].memory.reserved) << stage;
    EXPECT_EQ(Bytes{now.requested_bytes.all.peak}, plan.stages[stage].memory.requested) << stage;
  }
}

TEST(RealSpaces, AreSearchedAsAListOfAllPlans) {
  int fitting = 0;
  for (int space = 0; space < number_of_spaces(); ++space) {
    SCOPED_TRACE("space " + std::to_string(space));
    const RealSpace one(static_cast<unsigned>(space));
    plan::ModelPricer for_list = one.pricer(), for_search = one.pricer();
    const plan::Enumerated all = enumerate_plans(one.question(), for_list);
    const plan::Searched found = search(one.question(), for_search);
    std::printf("space %d: %ld plans, %ld fit\n", space, static_cast<long>(all.plans),
                static_cast<long>(all.fitting));
    ASSERT_EQ(found.best() != nullptr, all.best.has_value());
    if (!all.best) continue;
    ++fitting;
    EXPECT_LE(found.best()->seconds, 1.02 * all.best->seconds);
    EXPECT_TRUE(fits(one.question(), *found.best()));
    expect_steps_of(one, *found.best());
    expect_steps_of(one, *all.best);
  }
  EXPECT_GT(fitting, 0);
}

}  // namespace
}  // namespace headroom::estimate
