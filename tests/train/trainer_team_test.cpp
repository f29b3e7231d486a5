// A run on several cards: evaluation, checkpoints that any other layout may go on from, records of
// every card. A torch::nn::Sequential, of which one layout has one card.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "headroom/base/file.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/split.h"
#include "headroom/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace headroom::train {
namespace {

using headroom::testing::TemporaryFolder;
using torch::Tensor;

constexpr std::int64_t kColumns = 8, kLabels = 3;

struct TeamLayout {
  int replicas = 1, stages = 1;
};

Tensors numbered_batch(std::int64_t number) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(number));
  return {torch::randn({6, kColumns}, generator, torch::kDouble),
          torch::randint(kLabels, {6}, generator)};
}

Batches numbered(std::int64_t per_epoch, std::int64_t first) {
  const auto at = std::make_shared<std::int64_t>(first);
  return {.next = [at] { return numbered_batch((*at)++); },
          .per_epoch = per_epoch,
          .position = [at] { return std::to_string(*at); },
          .go_to = [at](const std::string& place) { *at = std::stoll(place); }};
}

// The same first values each time. The last module but one normalises over the batch's rows by
// running statistics alone, so that parts do not matter: buffers are in checkpoints, too.
struct TeamJob {
  TeamJob(const sim::Simulation& box, const TeamLayout& layout, TrainerOptions options) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(kColumns, 12), torch::nn::GELU(),
                              torch::nn::Linear(12, 12), torch::nn::GELU(),
                              torch::nn::Linear(12, 12), torch::nn::Tanh(),
                              torch::nn::Linear(12, kLabels));
    net->to(torch::kDouble);
    SplitOptions how{.replicas = layout.replicas};
    for (int card = 0; card < layout.replicas * layout.stages; ++card)
      how.devices.push_back(box.device(card));
    if (layout.stages == 4) how.modules = {2, 2, 2, 1};
    split.emplace(net, how);
    options.step.prices = false;
    options.step.plan.micro_batch = 2;
    options.evaluation.micro_batch = 2;
    trainer.emplace(split->team(
                        [](const Tensors& parameters) {
                          return optim::make_adamw(
                              parameters,
                              {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused});
                        },
                        [](const Tensor& output, const Tensors& rows) {
                          return torch::nn::functional::cross_entropy(output, rows[1]);
                        }),
                    numbered(4, 0), options, numbered(2, 100));
  }
  std::optional<Split> split;
  std::optional<Trainer> trainer;
};

sim::Simulation four_cards() {
  return sim::simulate("4x1GiB", {.mode = sim::Mode::compute, .check_streams = true});
}

TrainerOptions steps_into(const std::filesystem::path& out, std::int64_t steps) {
  return {.steps = steps, .out = out, .resume = true};
}

constexpr TeamLayout kLayouts[] = {{1, 1}, {2, 1}, {1, 4}, {2, 2}};

// The run goes on from its checkpoint on other cards, and ends as the one that had the same all the
// time, but for the order of sums.
TEST(TrainerTeam, GoesOnWithAnyOtherLayout) {
  const sim::Simulation box = four_cards();
  const TemporaryFolder whole;
  TeamJob right(box, {1, 1}, steps_into(whole.path(), 6));
  const Trained expected = right.trainer->run();
  for (const TeamLayout& first : kLayouts)
    for (const TeamLayout& second : kLayouts) {
      SCOPED_TRACE(std::to_string(first.replicas) + " x " + std::to_string(first.stages) +
                   ", then " + std::to_string(second.replicas) + " x " +
                   std::to_string(second.stages));
      const TemporaryFolder out;
      {
        TeamJob one(box, first, steps_into(out.path(), 3));
        EXPECT_EQ(one.trainer->run().steps, 3);
      }
      TeamJob other(box, second, steps_into(out.path(), 6));
      const auto found = other.trainer->prepare();
      ASSERT_TRUE(found.has_value());
      EXPECT_TRUE(found->same_optimizer);
      EXPECT_EQ(found->step, 3);
      const Trained done = other.trainer->run();
      EXPECT_EQ(done.steps, 6);
      EXPECT_NEAR(done.loss, expected.loss, 1e-12);
      ASSERT_TRUE(done.evaluation.has_value());
      EXPECT_NEAR(done.evaluation->loss, expected.evaluation->loss, 1e-12);
      EXPECT_EQ(done.evaluation->rows, 12);
    }
}

TEST(TrainerTeam, AnOutOfMemoryInTheEvaluationOfAnyCardIsMeasuredAgain) {
  for (const TeamLayout& layout : {TeamLayout{2, 2}, TeamLayout{1, 4}}) {
    const sim::Simulation box = four_cards();
    std::vector<Event> events;
    TrainerOptions options;
    options.listener.on_event = [&](const Event& event) { events.push_back(event); };
    TeamJob run(box, layout, options);
    const double expected = run.trainer->evaluate().loss;
    for (int card = 0; card < 4; ++card)
      for (std::uint64_t request = 1;; ++request) {
        SCOPED_TRACE("card " + std::to_string(card) + ", request " + std::to_string(request));
        events.clear();
        {
          const sim::InjectionScope scope(box.card(card), sim::once(request));
          EXPECT_EQ(run.trainer->evaluate().loss, expected);
        }
        if (events.empty()) {
          EXPECT_GT(request, 3U);
          break;
        }
        EXPECT_EQ(events[0].device, box.device(card).str());
        ASSERT_FALSE(::testing::Test::HasFailure());
      }
  }
}

TEST(TrainerTeam, RecordsTheMemoryOfEveryCard) {
  const sim::Simulation box = four_cards();
  const TemporaryFolder out;
  std::vector<std::string> lines;
  TrainerOptions options = steps_into(out.path(), 2);
  options.listener.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  TeamJob run(box, {2, 2}, options);
  static_cast<void>(run.trainer->run());
  std::istringstream text(read_input(out.path() / "metrics.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(text, line));
  const Json metrics = parse_json(line, "metrics");
  EXPECT_EQ(metrics.at("micro_batch"), 2);
  ASSERT_EQ(metrics.at("cards").size(), 4U);
  for (int card = 0; card < 4; ++card) {
    const Json& one = metrics["cards"][static_cast<std::size_t>(card)];
    EXPECT_EQ(one.at("device"), box.device(card).str());
    EXPECT_GT(one.at("max_allocated_bytes").get<std::int64_t>(), 0);
  }
  const std::string all = box.device(0).str() + " to " + box.device(3).str();
  EXPECT_THAT(lines, ::testing::Contains(::testing::HasSubstr(all + " allocated")));
}

}  // namespace
}  // namespace headroom::train
