// Published models in parts on several cards.
#include "headroom/train/model_team.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/model/shapes.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"
#include "nets.h"
#include "tests/models/tiny_models.h"

namespace headroom::train {
namespace {

using models::Part;
using plan::Pipeline;

StepOptions plain(std::int64_t micro_batch) {
  StepOptions options;
  options.prices = options.adapts = false;
  options.plan.micro_batch = micro_batch;
  return options;
}

// Models, optimizers and the step.
struct Ranks {
  RankModels models;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::optional<Step> step;

  template <typename Make>  // make(part)
  Ranks(const std::vector<c10::Device>& devices, const std::vector<Part>& parts,
        torch::ScalarType type, const StepOptions& options, const Make& make) {
    const auto stages = static_cast<int>(parts.size());
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const Part part = parts[rank % parts.size()];
      models.push_back(libtorch::on(devices[rank], type, [&] { return make(part); }));
      at::Generator generator = at::globalContext().defaultGenerator(devices[rank]);
      generator.set_current_seed(1);
      models::initialise(*models.back());
      models.back()->train();
      optimizers.push_back(
          optim::make_adamw(own_parameters(models, stages, rank),
                            {.learning_rate = 1e-3, .form = optim::OptimizerForm::fused}));
    }
    step.emplace(team_of(models, optimizers, stages), options);
  }
};

std::vector<c10::Device> all_cards(const sim::Simulation& box, int count) {
  std::vector<c10::Device> all;
  for (int card = 0; card < count; ++card) all.push_back(box.device(card));
  return all;
}

class ModelTeam : public ::testing::TestWithParam<const char*> {};

// Without dropout the whole model on one card, two replicas of it, three parts, and two replicas of
// two parts have the same losses, but for the order of sums.
TEST_P(ModelTeam, TrainsAsTheWholeModelDoes) {
  const char* const keys = R"({"num_hidden_layers":3,"n_layer":3,"num_layers":2,"depths":[1,2],
    "tie_word_embeddings":true,"attn_pdrop":0.0,"resid_pdrop":0.0,"embd_pdrop":0.0,
    "dropout_rate":0.0,"output_router_logits":true,"hidden_dropout_prob":0.0,
    "attention_probs_dropout_prob":0.0})";
  const sim::Simulation box =
      sim::simulate("4x1GiB", {.mode = sim::Mode::compute, .check_streams = true});
  const std::int64_t layers = model::layer_count(models::tiny(GetParam(), keys)->config());
  const auto losses = [&](int replicas, int stages) {
    Ranks run(all_cards(box, replicas * stages), even_parts(layers, stages), torch::kFloat,
              plain(1), [&](const Part& part) {
                return models::tiny(GetParam(), keys,
                                    {.part = stages > 1 ? std::optional(part) : std::nullopt});
              });
    torch::manual_seed(3);
    std::vector<double> all;
    for (int i = 0; i < 5; ++i) {
      const models::Batch batch =
          models::random_batch(*run.models[0], {.rows = 4, .length = 8, .image = 16}, at::kCPU);
      all.push_back(run.step->run(tensors_of(batch)).loss());
    }
    return all;
  };
  const std::vector<double> whole = losses(1, 1);
  EXPECT_LT(whole.back(), whole.front() + 1);
  for (const auto& [replicas, stages] : {std::pair{2, 1}, {1, 3}, {2, 2}}) {
    SCOPED_TRACE(std::to_string(replicas) + " x " + std::to_string(stages));
    const std::vector<double> found = losses(replicas, stages);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(found[i], whole[i], 2e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelTeam,
                         ::testing::Values("llama", "gpt2", "t5", "bert", "mixtral", "resnet"),
                         [](const auto& type) { return std::string(type.param); });

// A program of its own with the same layers, written by hand, reserves 28.7 GiB on the fullest
// card.
TEST(ModelTeamMemory, TwentyBillionParametersFitOnEightCards) {
  const auto named = model::model_named("gpt-neox-20b");
  const sim::Simulation box = sim::simulate("8x31.36GiB", {.settings = allocator::Settings{}});
  StepOptions options;
  options.plan.micro_batch = 1;
  options.adapts = false;
  Ranks run(all_cards(box, 8), parts_of({5, 5, 5, 6, 6, 6, 6, 5}, 44), torch::kBFloat16, options,
            [&](const Part& part) { return models::build(named.config, {.part = part}); });
  const models::Batch batch =
      models::empty_batch(*run.models[0], {.rows = 10, .length = 1024}, at::kCPU);
  run.step->prepare(tensors_of(batch));
  ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
  const auto needed = run.step->prices()->needed(options.plan, {.rows = 10});
  ASSERT_TRUE(needed.has_value());
  for (int i = 0; i < 2; ++i) static_cast<void>(run.step->run(tensors_of(batch)));
  double largest = 0;
  for (int card = 0; card < 8; ++card) {
    const auto reserved = box.card(card).statistics().reserved_bytes.all.peak;
    // The smallest card that serves the stage; on a larger one the cache is never emptied.
    const std::int64_t least = needed->of(static_cast<std::size_t>(card)).count;
    EXPECT_LE(least, reserved) << card;
    EXPECT_GT(static_cast<double>(least), 0.97 * static_cast<double>(reserved)) << card;
    largest = std::max(largest, static_cast<double>(reserved) / (1 << 30));
  }
  EXPECT_NEAR(largest, 28.7, 0.287);
}

// Buckets and scratch memory are all that comes on top, and no card has what belongs to others.
TEST(ModelTeamMemory, AReplicaNeedsAtMost64MiBMoreThanOneCard) {
  const auto named = model::model_named("gpt2");
  const auto peaks = [&](int replicas) {
    const sim::Simulation box = sim::simulate("4x24GiB", {.settings = allocator::Settings{}});
    Ranks run(all_cards(box, replicas), {Part{}}, torch::kFloat, plain(2),
              [&](const Part&) { return models::build(named.config); });
    const models::Batch batch =
        models::empty_batch(*run.models[0], {.rows = 4 * replicas, .length = 256}, at::kCPU);
    for (int i = 0; i < 2; ++i) static_cast<void>(run.step->run(tensors_of(batch)));
    std::vector<double> all;
    for (int card = 0; card < replicas; ++card)
      all.push_back(static_cast<double>(box.card(card).statistics().requested_bytes.all.peak));
    return all;
  };
  const double alone = peaks(1).front();
  const std::vector<double> of_replicas = peaks(4);
  for (const double peak : of_replicas) {
    EXPECT_LE(peak - alone, 64 << 20);
    EXPECT_GE(peak, alone);
    EXPECT_EQ(peak, of_replicas.front());
  }
}

TEST(EvenParts, AreLargerInTheMiddle) {
  const auto counts = [](std::int64_t layers, int stages) {
    std::vector<std::int64_t> all;
    for (const Part& part : even_parts(layers, stages)) all.push_back(part.count);
    return all;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(counts(12, 4), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(counts(32, 3), ElementsAre(11, 11, 10));
  EXPECT_THAT(counts(44, 8), ElementsAre(5, 5, 6, 6, 6, 6, 5, 5));
  EXPECT_THROW(static_cast<void>(even_parts(2, 3)), UsageError);
  EXPECT_THROW(static_cast<void>(parts_of({3, 4}, 8)), UsageError);
}

}  // namespace
}  // namespace headroom::train
