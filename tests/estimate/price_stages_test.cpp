// Prices of single stages against those of whole teams, to the byte, and what a stage needs at
// least against its price.
#include "headroom/estimate/price_stages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/config/resolved.h"
#include "headroom/config/training_keys.h"
#include "headroom/gpu/catalogue.h"
#include "headroom/model/shapes.h"
#include "headroom/plan/model_pricer.h"
#include "headroom/plan/pipeline.h"
#include "headroom/recipe/recipe.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"
#include "tests/estimate/small_models.h"

namespace headroom::estimate {
namespace {

using namespace headroom::literals;
namespace fs = std::filesystem;
using Keys = std::vector<std::string>;

constexpr int kRows = 14;

class PriceStages : public ::testing::Test {
 protected:
  PriceStages() : folder_(fs::path(::testing::TempDir()) / "price-stages") {
    fs::create_directories(folder_);
  }

  // A small model of this kind with six layers or more.
  [[nodiscard]] config::Training training(const std::string& model, const Keys& more = {}) const {
    const Json six{{"num_hidden_layers", 6},
                   {"n_layer", 6},
                   {"num_layers", 3},
                   {"n_layers", 6},
                   {"num_decoder_layers", 3}};
    const fs::path file = folder_ / (model + ".json");
    Json config = small(model).config.file();
    for (const auto& [key, value] : six.items())
      if (config.contains(key)) config[key] = value;
    if (config.contains("attention_types")) {
      config["num_layers"] = 6;
      config["attention_types"] = Json::parse(R"([[["global", "local"], 3]])");
    }
    std::ofstream(file) << config;
    Keys keys{"model=full",      "model.config=" + file.string(),       "dataset=synthetic",
              "weights=random",  "batch_size=" + std::to_string(kRows), "optimizer=adamw",
              "min_batch_size=1"};
    keys.insert(keys.end(), more.begin(), more.end());
    const config::Training made(config::resolve(config::training_keys(), {.overrides = keys}));
    if (made.on_images) return made;
    keys.push_back("seq=16");
    return config::Training(config::resolve(config::training_keys(), {.overrides = keys}));
  }
  [[nodiscard]] static gpu::SimulatedCard card() { return {.name = "card", .total = 8_GiB}; }

  // What each stage of the training reserves, by the dry runs of all of them together.
  [[nodiscard]] static train::PerStage of_team(const config::Training& training) {
    const auto box = sim::simulate(std::to_string(training.sharing.cards()) + "x8GiB",
                                   {.mode = sim::Mode::shape_only});
    std::vector<c10::Device> devices;
    for (int i = 0; i < training.sharing.cards(); ++i) devices.push_back(box.device(i));
    const recipe::Recipe recipe = recipe::make(training, devices);
    train::Step step(recipe.team, recipe.step);
    const auto rows = recipe.batches.next();
    step.prepare(rows);
    TORCH_CHECK(step.prices() != nullptr, step.why_unpriced());
    const train::Work work{.rows = kRows / training.sharing.replicas};
    return step.prices()->peaks(recipe.step.plan, work).value();
  }
  // The same stages, each alone.
  static void expect_prices_of(const config::Training& training, const train::PerStage& team) {
    const config::Sharing& sharing = training.sharing;
    StagePrices prices(training, {card()}, {});
    const std::int64_t part = training.micro_batch(), rows = kRows / sharing.replicas;
    const auto parts = static_cast<int>((rows + part - 1) / part);
    const plan::Pipeline pipeline = plan::pipeline_named(training.config.text("pipeline"));
    std::int64_t first = 0;
    for (int stage = 0; stage < sharing.stages; ++stage) {
      const std::int64_t count = sharing.split.at(static_cast<std::size_t>(stage));
      const plan::Stage asked{
          .form = {.rows = part, .replicas = sharing.replicas},
          .first = first,
          .count = count,
          .waiting = plan::most_in_flight(pipeline, stage, sharing.stages, parts),
          .parts = parts,
          .rows = rows,
          .checkpointed = sharing.checkpointed.contains(stage)};
      EXPECT_EQ(prices.of(asked).reserved, team.of(static_cast<std::size_t>(stage)))
          << "stage " << stage;
      first += count;
    }
  }

  const fs::path folder_;
};

// Tied weights, shared embeddings of T5, windows, experts; eight parts, six of unequal sizes, and
// two; and everything that a training may have besides. All teams come first: a process that has
// run backward cannot price any (sim/child.h).
TEST_F(PriceStages, AreThoseOfATeam) {
  std::vector<config::Training> trainings;
  for (const char* model : {"gpt2", "t5-small", "mixtral-8x7b"})
    for (const char* part : {"micro_batch=2", "micro_batch=3"})
      trainings.push_back(training(model, {"split=1,3,2", part}));
  const std::vector<Keys> forms{{"split=2,2,2", "pipeline=gpipe", "micro_batch=1"},
                                {"split=3,3", "replicas=2", "micro_batch=1"},
                                {"split=3,3", "checkpointed_stages=0", "micro_batch=2"},
                                {"split=3,3", "gradient_checkpointing=every:2", "micro_batch=2"},
                                {"split=3,3", "loss=fused", "micro_batch=2"},
                                {"split=3,3", "bf16=true", "micro_batch=2"},
                                {"split=3,3", "dtype=bfloat16", "micro_batch=2"},
                                {"split=3,3", "optimizer=adamw8bit", "micro_batch=2"},
                                {"split=3,3", "max_grad_norm=0", "micro_batch=2"},
                                {"split=3,3", "model=lora", "micro_batch=2"},
                                {"split=3,3", "offload=activations", "micro_batch=2"}};
  for (const Keys& form : forms) trainings.push_back(training("llama-3.2-1b", form));
  trainings.push_back(
      training("llama-3.2-1b", {"split=3,3", "model=lora", "quantize=4bit", "micro_batch=2"}));
  std::vector<train::PerStage> teams;
  for (const config::Training& one : trainings) teams.push_back(of_team(one));
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    SCOPED_TRACE(to_line(trainings[i].config.given()));
    expect_prices_of(trainings[i], teams[i]);
  }
}

// Each kind of model, each stage of one, two or all layers: what it surely needs is not more than
// it needs, before a dry run has shown that, and after others have.
TEST_F(PriceStages, AreAtLeastWhatIsCertain) {
  for (const std::string& model : one_of_each_type()) {
    SCOPED_TRACE(model);
    const config::Training one = training(model);
    StagePrices prices(one, {card()}, {});
    std::vector<plan::PricedTraining> trainings;
    trainings.push_back({one.settings, plan::PriceBook(Json{{"test", model}})});
    plan::ModelPricer pricer(one.model.config, std::move(trainings),
                             {{&gpu::card_named("RTX 4090")}, {0}},
                             [&](const plan::Stage& stage) { return prices.of(stage); });
    const std::int64_t layers = model::layer_count(one.model.config);
    const std::set<std::int64_t> counts{1, 2, layers};
    for (const std::int64_t count : counts)
      for (std::int64_t first = 0; first + count <= layers; ++first)
        for (const bool checkpointed : {false, true})
          for (const int waiting : count < layers ? std::vector{3, 1} : std::vector{1}) {
            const plan::Stage stage{.form = {.rows = 2},
                                    .first = first,
                                    .count = count,
                                    .waiting = waiting,
                                    .parts = 8,
                                    .rows = 16,
                                    .checkpointed = checkpointed};
            const plan::StageMemory least = pricer.at_least(stage), most = pricer.exact(stage);
            EXPECT_LE(least.resident, most.resident) << first << " " << count;
            EXPECT_LE(least.reserved, most.reserved) << first << " " << count;
          }
  }
}

}  // namespace
}  // namespace headroom::estimate
