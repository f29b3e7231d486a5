// Which plan a step takes: on every size of card, for layers that need several rows, and back from
// the heaviest. Where prices matter, a test prices before this process runs backward.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headroom/libtorch/on.h"
#include "headroom/models/batch.h"
#include "headroom/nn/lora.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/model_objective.h"
#include "headroom/train/trainer.h"
#include "text_net.h"

namespace headroom::train {
namespace {

using namespace literals;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Every size of card ----

Json gpt(int width, int layers, int vocabulary) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", width},
          {"n_head", 4},
          {"n_layer", layers},
          {"n_positions", 256},
          {"vocab_size", vocabulary}};
}

const Json kVit{{"architectures", {"ViTForImageClassification"}},
                {"model_type", "vit"},
                {"hidden_size", 64},
                {"num_hidden_layers", 3},
                {"num_attention_heads", 4},
                {"intermediate_size", 256},
                {"image_size", 32},
                {"patch_size", 4}};

struct Asked {
  Json config;
  bool lora = false;
  std::int64_t rows = 0, length = 0;
};

// The ladder of such a step, with its prices.
struct Priced {
  sim::Simulation box = sim::simulate("80GiB");
  std::shared_ptr<models::Model> model;
  std::optional<nn::Lora> lora;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Step> step;

  explicit Priced(const Asked& asked) {
    const c10::Device card = box.device(0);
    model = libtorch::on(card, [&] { return models::build({asked.config, "test"}, {}); });
    if (asked.lora) lora = nn::add_lora(model->module(), {.rank = 4});
    std::vector<at::Tensor> trained;
    for (const at::Tensor& one : model->module().parameters())
      if (one.requires_grad()) trained.push_back(one);
    optimizer = optim::make_adamw(trained, {.form = optim::OptimizerForm::fused});
    step = std::make_unique<Step>(model->module(), *optimizer, objective_of(model));
    step->prepare(tensors_of(
        models::empty_batch(*model, {.rows = asked.rows, .length = asked.length}, card)));
    EXPECT_NE(step->prices(), nullptr) << step->why_unpriced();
  }
};

// A training was said to fit into 28 MiB in 3 parts, and on 30 to 34 MiB not to fit: the
// micro-batch was searched as if a larger part always needed more, and 2 parts were taken whose own
// price was higher than the card.
TEST(ChosenPlan, FitsOnEveryCardThatIsLargerThanOneOnWhichAPlanFits) {
  const std::vector<Asked> all{
      {.config = gpt(64, 2, 256), .rows = 32, .length = 64},
      {.config = gpt(64, 2, 256), .rows = 7, .length = 200},
      {.config = gpt(256, 4, 16'000), .rows = 32, .length = 128},
      {.config = gpt(256, 4, 16'000), .lora = true, .rows = 24, .length = 64},
      {.config = kVit, .rows = 64}};
  for (const Asked& asked : all) {
    const Priced priced(asked);
    const Prices& prices = *priced.step->prices();
    const Work work{.rows = asked.rows};
    for (const std::int64_t least : {1, 4, 30}) {
      SCOPED_TRACE(asked.config.dump() + ", at least " + std::to_string(least));
      const Ladder ladder({.min_micro_batch = least}, &prices);
      const auto enough = ladder.least({}, work);
      ASSERT_TRUE(enough);
      const std::int64_t whole = prices.needed({}, work)->largest().count;
      for (std::int64_t size = 0; size < 3 * whole; size += whole / 300 + 1) {
        const auto plan = ladder.fastest({}, work, Bytes{size});
        ASSERT_EQ(plan.has_value(), enough->needed <= Bytes{size}) << size;
        if (!plan) continue;
        ASSERT_LE(prices.needed(*plan, work)->largest(), Bytes{size}) << to_string(*plan);
        ASSERT_GE(largest_part(*plan, asked.rows), std::min(least, asked.rows));
      }
    }
  }
}

// The advice after an out-of-memory named bfloat16, which did not help; min_batch_size=1 did.
TEST(ChosenPlan, TheLeastNeedIsThatOfTheLeastMicroBatchWhereTheLimitIsInTheWay) {
  const Priced priced({.config = gpt(64, 2, 256), .rows = 32, .length = 64});
  LadderOptions options{.min_micro_batch = 8};
  const auto allowed = Ladder(options, priced.step->prices()).least({}, {.rows = 32});
  options.min_micro_batch = 1;
  const auto any = Ladder(options, priced.step->prices()).least({}, {.rows = 32});
  EXPECT_LT(any->needed, allowed->needed);
  EXPECT_EQ(any->plan.micro_batch, 1);
  EXPECT_EQ(allowed->plan.micro_batch, 8);
}

// Beside other jobs that started at the same moment a training chose its plan for more memory than
// it then compared the plan with, and called that "does not fit".
TEST(ChosenPlan, OfAFirstStepFitsIntoTheMemoryThatIsNamed) {
  const Priced priced({.config = gpt(64, 2, 256), .rows = 32, .length = 64});
  const auto needed = [&](Bytes usable) {
    const Plan plan = priced.step->first_plan(32, usable);
    return priced.step->prices()->needed(plan, {.rows = 32})->largest();
  };
  const Bytes least = priced.step->least_plan(32)->needed, whole = needed(80_GiB);
  ASSERT_LT(least, whole);
  for (Bytes usable = least; usable < whole; usable += Bytes{whole.count / 50})
    EXPECT_LE(needed(usable), usable);
}

// ---- Layers that need several rows ----

struct NormedImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor spread;

  explicit NormedImpl(std::int64_t copies) {
    first = register_module("first", torch::nn::Linear(64, 64));
    norm = register_module("norm", torch::nn::BatchNorm1d(64));
    last = register_module("last", torch::nn::Linear(64, 64));
    spread = register_buffer("spread", torch::ones({copies, 1}));
  }
  // 2 MiB of activations for each row and operation, with 8192 copies.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor wide = torch::tanh(norm(first(x)).unsqueeze(1) * spread);
    return last(wide.mean(1)).square().mean();
  }
};
TORCH_MODULE(Normed);

struct NormedRun {
  sim::Simulation box;
  Normed net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Step> step;
  std::function<void()> before_loss = [] {};
  Tensors batch;

  explicit NormedRun(const char* card, const StepOptions& options, std::int64_t rows = 64,
                     std::int64_t copies = 8192)
      : box(sim::simulate(card, {.mode = sim::Mode::compute})), net(nullptr) {
    torch::manual_seed(1);
    net = libtorch::on(box.device(0), [&] { return Normed(copies); });
    optimizer = optim::make_sgd(net->parameters(), {.form = optim::OptimizerForm::fused});
    batch = {torch::randn({rows, 64})};
    const auto loss = [this](const Tensors& some) {
      before_loss();
      return net->forward(some[0]);
    };
    step = std::make_unique<Step>(*net, *optimizer, Objective{.loss = loss}, options);
  }
  // Of parameters and buffers.
  [[nodiscard]] Tensors values() const {
    Tensors all;
    for (const at::Tensor& one : net->parameters()) all.push_back(one.detach().cpu().clone());
    for (const at::Tensor& one : net->buffers()) all.push_back(one.cpu().clone());
    return all;
  }
};

const StepOptions kBlind{.prices = false, .grow_after = 2};

// Batch norm over single values refuses a row alone. A run took that row as its last plan and ended
// with batch norm's error, although two rows fit, and so did every later step of it.
TEST(ChosenPlan, OfTooFewRowsForBatchNormIsLeftForALargerOne) {
  NormedRun run("60MiB", kBlind);
  const Committed done = run.step->run(run.batch);
  EXPECT_GE(smallest_part(done.plan, 64), 2);
  EXPECT_THAT(done.events,
              Contains(Field(&Event::why, HasSubstr("more than 1 value per channel"))));
  for (int i = 0; i < 12; ++i) {
    const Committed next = run.step->run(run.batch);
    EXPECT_GE(smallest_part(next.plan, 64), 2);
    EXPECT_THAT(next.events, Not(Contains(Field(&Event::why, HasSubstr("per channel")))));
  }
}

TEST(ChosenPlan, ThatFailsOtherwiseLeavesTheOutOfMemoryAndThePlanFromBefore) {
  NormedRun run("60MiB", kBlind);
  const auto others = run.box.card(0).free_bytes() - 9_MiB;
  run.box.card(0).set_used_by_others(others);
  EXPECT_THROW((void)run.step->run(run.batch), c10::OutOfMemoryError);
  EXPECT_EQ(run.step->plan(), kBlind.plan);
  EXPECT_THAT(run.step->last_failure()->plan.micro_batch, 2) << "the last that ran out of memory";
  run.box.card(0).set_used_by_others({});
  EXPECT_GE(smallest_part(run.step->run(run.batch).plan, 64), 2);
}

TEST(ChosenPlan, IsNeverOfTooFewRowsWherePricesAreKnown) {
  StepOptions options{.ladder = {.room = {.least = 0_B, .share = 0}}};
  NormedRun run("44MiB", options);
  const Committed done = run.step->run(run.batch);
  ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
  EXPECT_EQ(run.step->prices()->fewest_rows(), 2);
  EXPECT_EQ(done.attempts, 1);
  EXPECT_THAT(done.events, IsEmpty()) << "nothing failed, and nothing changed";
  EXPECT_EQ(done.plan.micro_batch, largest_part(done.plan, 64));
  const auto least = run.step->least_plan(3);
  EXPECT_EQ(smallest_part(least->plan, 3), 3) << "2 and 1 would be too few";
}

// With a refusal that lasts until the plan changes, or for ever, at any request: the step commits
// as a clean run under its plan, or throws the out-of-memory, and never what batch norm said.
TEST(ChosenPlan, OfBatchNormCommitsOrThrowsTheOutOfMemory) {
  for (const std::int64_t rows : {64, 9, 3, 2}) {
    std::uint64_t requests = 0;
    {
      NormedRun clean("1GiB", kBlind, rows, 16);
      const std::uint64_t before = clean.box.card(0).requests();
      static_cast<void>(clean.step->run(clean.batch));
      requests = clean.box.card(0).requests() - before;
    }
    for (std::uint64_t k = 1; k <= requests; k += 3)
      for (const bool ends : {true, false}) {
        SCOPED_TRACE(std::to_string(rows) + " rows, request " + std::to_string(k));
        const sim::Lift lift;
        StepOptions options = kBlind;
        options.on_event = [&](const Event& event) {
          if (ends && event.kind != Event::Kind::oom && event.from != event.to) lift.now();
        };
        std::optional<Plan> plan;
        Tensors ours;
        {
          NormedRun run("1GiB", options, rows, 16);
          const sim::InjectionScope scope(run.box.card(0), sim::lasting(k, lift));
          try {
            plan = run.step->run(run.batch).plan;
            ours = run.values();
          } catch (const c10::OutOfMemoryError&) {
            EXPECT_FALSE(ends && rows > 3);
          }
        }
        if (!plan) continue;
        NormedRun clean("1GiB", {.plan = *plan, .prices = false}, rows, 16);
        static_cast<void>(clean.step->run(clean.batch));
        expect_same(ours, clean.values());
      }
  }
}

// The user's own mistake, in the plan that was asked for and in one that has run before.
TEST(ChosenPlan, ThatHasRunThrowsWhatFailsAtOnce) {
  NormedRun run("60MiB", kBlind);
  int calls = 0;
  run.before_loss = [&] {
    if (++calls > 0) throw std::domain_error("mine");
  };
  EXPECT_THROW((void)run.step->run(run.batch), std::domain_error);
  EXPECT_EQ(calls, 1);
  run.before_loss = [] {};
  const Plan small = run.step->run(run.batch).plan;
  calls = 0;
  run.before_loss = [&] {
    ++calls;
    throw std::domain_error("mine");
  };
  EXPECT_THROW((void)run.step->run(run.batch), std::domain_error);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(run.step->plan(), small);
}

// ---- Evaluations ----

// Two batches were measured at once and the others in parts: no micro-batch gave the same loss
// again.
TEST(ChosenPlan, OfAnEvaluationIsOneForAllOfItsBatches) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const Training run = transformer(box.device(0));
  int at = 0;
  const Batches batches{.next = [&] { return run.batch(at++ % 3); },
                        .per_epoch = 3,
                        .position = [&] { return std::to_string(at); },
                        .go_to = [&](const std::string& place) { at = std::stoi(place); }};
  const auto loss = [&](std::int64_t micro_batch) {
    Evaluation evaluation(*run.module, run.objective, {.micro_batch = micro_batch});
    at = 0;
    return evaluation.run(batches).loss;
  };
  const double whole = loss(0), parts = loss(3);
  EXPECT_NEAR(whole, parts, 1e-5);
  const sim::Lift lift;
  const auto count = [&] {
    const auto before = box.card(0).requests();
    EXPECT_EQ(loss(0), whole);
    return (box.card(0).requests() - before) / 3;
  };
  Evaluation evaluation(*run.module, run.objective, {.on_event = [&](const Event& event) {
    if (event.kind == Event::Kind::shrink) lift.now();
  }});
  const sim::InjectionScope scope(box.card(0), sim::lasting(count() * 3 / 2, lift));
  at = 0;
  const Evaluated result = evaluation.run(batches);
  EXPECT_EQ(evaluation.micro_batch(), 3);
  EXPECT_EQ(result.loss, parts);
  EXPECT_EQ(result.rows, 21);
}

// ---- When none is left ----

// A neighbour that left no room for a step ended the run within a second.
TEST(ChosenPlan, IsTriedAgainAfterAWaitForMemory) {
  const sim::Simulation box = sim::simulate("160MiB", {.mode = sim::Mode::compute});
  int waits = 0;
  const auto wait = [&](const Failure& failure) {
    EXPECT_GT(failure.asked.value_or(0_B), 0_B);
    box.card(0).set_used_by_others({});
    return ++waits == 1;
  };
  const Training run = text(box.device(0), {.wait_for_memory = wait});
  EXPECT_EQ(run.step->run(tokens(32, 64)).plan, Plan{});
  box.card(0).empty_cache();
  box.card(0).set_used_by_others(160_MiB - 16_MiB);
  const Committed done = run.step->run(tokens(32, 64));
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(done.step, 2);
  EXPECT_EQ(done.plan, Plan{});
}

// ---- Back from the heaviest plan ----

// No plan left 512 MiB of a card of 300 free, so none was looked for: neither after a refusal, when
// the heaviest plan was taken at once, nor ten steps later, when the heaviest stayed for ever.
TEST(ChosenPlan, OnASmallCardIsTheLargestThatFitsAndGrowsBack) {
  const sim::Lift lift;
  const auto lift_when_smaller = [&](const Event& event) {
    if (event.kind == Event::Kind::shrink || event.kind == Event::Kind::technique) lift.now();
  };
  const sim::Simulation box = sim::simulate("300MiB", {.mode = sim::Mode::compute});
  const Training run = text(box.device(0), {.grow_after = 2, .on_event = lift_when_smaller});
  EXPECT_EQ(run.step->run(tokens(32, 64)).plan, Plan{});
  ASSERT_NE(run.step->prices(), nullptr) << run.step->why_unpriced();
  {
    const sim::InjectionScope scope(box.card(0), sim::lasting(40, lift));
    const Committed shrunk = run.step->run(tokens(32, 64));
    EXPECT_EQ(to_string(shrunk.plan), "micro-batch 16");
  }
  for (int i = 0; i < 3; ++i) static_cast<void>(run.step->run(tokens(32, 64)));
  EXPECT_EQ(run.step->plan(), Plan{});
}

}  // namespace
}  // namespace headroom::train
