#include "headroom/train/oom_report.h"

#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "headroom/base/text.h"
#include "headroom/base/wrap.h"
#include "headroom/libtorch/failure.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"

namespace headroom::train {
namespace {

using namespace literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = OomReport::Kind;

// A square layer of 16 MiB, whose statistics are a buffer of 4 MiB.
struct WideImpl : torch::nn::Module {
  torch::nn::Linear wide{nullptr};
  torch::Tensor table;

  WideImpl() {
    wide = register_module("wide",
                           torch::nn::Linear(torch::nn::LinearOptions(2048, 2048).bias(false)));
    table = register_buffer("table", torch::zeros({1024, 1024}));
  }
  // Keeps 8 MiB of activations for every 1024 rows and step.
  torch::Tensor forward(torch::Tensor x, int steps) {
    for (int i = 0; i < steps; ++i) x = torch::tanh(wide(x));
    return x.mean();
  }
};
TORCH_MODULE(Wide);

Bytes sum(const OomReport& report, Kind kind) {
  return report.sums[static_cast<std::size_t>(kind)];
}

std::vector<std::string> names(const OomReport& report) {
  std::vector<std::string> all;
  for (const auto& one : report.largest) all.push_back(one.name);
  return all;
}

std::string advice(const OomReport& report) {
  std::string all;
  for (const auto& one : report.advice) all += one.text + "\n";
  return all;
}

gpu::HolderReport holder(pid_t pid, Bytes used, gpu::HolderClass holder_class) {
  return {.holder_class = holder_class,
          .process = ProcessIdentity{.pid = pid},
          .command = "python serve.py",
          .used = used,
          .action = "ask ann"};
}

// What a program reports that catches the failure of `run`.
Failure failure_of(c10::Device device, const std::function<void()>& run) {
  try {
    run();
  } catch (...) {
    const oom::Judgement judgement = libtorch::judge(std::current_exception());
    EXPECT_TRUE(oom::is_out_of_memory(judgement)) << judgement.evidence;
    return failure_from(judgement, device);
  }
  ADD_FAILURE() << "did not run out of memory";
  return {};
}

TEST(OomReport, NamesTheTensorsOfTheModelAndSumsThemByKind) {
  const sim::Simulation box = sim::simulate("1GiB", {.cublas_workspaces = false});
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  const auto adam = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
  adam->reserve();
  net->forward(torch::ones({16, 2048}, card), 1).backward();
  const torch::Tensor kept = torch::ones({512, 1024}, card);
  const OomReport report = oom_report({.device = card,
                                       .failure = {.asked = 2_GiB, .free = 1_GiB},
                                       .module = net.get(),
                                       .optimizer = adam.get()});
  EXPECT_EQ(sum(report, Kind::parameters), 16_MiB);
  EXPECT_EQ(sum(report, Kind::gradients), 16_MiB);
  EXPECT_EQ(sum(report, Kind::optimizer_states), 32_MiB + 512_B);  // and the count of steps
  EXPECT_EQ(sum(report, Kind::buffers), 4_MiB);
  EXPECT_NEAR(sum(report, Kind::other).mib(), 2, 0.01);
  Bytes all;
  for (const Bytes one : report.sums) all += one;
  EXPECT_EQ(all, memory::get_gpu_memory_stats(card).allocated);
  EXPECT_THAT(names(report),
              ::testing::ElementsAre(::testing::_, ::testing::_, ::testing::_, ::testing::_,
                                     "table", "", "step of wide.weight"));
  EXPECT_THAT(names(report),
              ::testing::IsSupersetOf({"wide.weight", "gradient of wide.weight",
                                       "exp_avg of wide.weight", "exp_avg_sq of wide.weight"}));
}

TEST(OomReport, KnowsTheStatesOfAnOptimizerOfLibTorch) {
  const sim::Simulation box = sim::simulate("1GiB");
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  torch::optim::AdamW adam(net->parameters());
  net->forward(torch::ones({16, 2048}, card), 1).backward();
  adam.step();
  const OomReport report = oom_report(
      {.device = card, .failure = {}, .module = net.get(), .states = libtorch::states_of(adam)});
  EXPECT_EQ(sum(report, Kind::optimizer_states), 32_MiB);
}

TEST(OomReport, TellsWhereOtherMemoryCameFromWhereAHistoryWasRecorded) {
  const sim::Simulation box = sim::simulate("1GiB");
  const c10::Device card = box.device(0);
  const torch::Tensor before = torch::ones({512, 1024}, card);
  trace::Recorder recorder;
  const memory::History history = memory::record_history(card, recorder);
  std::vector<torch::Tensor> kept;
  {
    const trace::ModuleScope module(recorder, recorder.name("h.0.attn"));
    for (int i = 0; i < 3; ++i) kept.push_back(torch::tanh(before));
  }
  const OomReport report = oom_report({.device = card, .failure = {}});
  EXPECT_EQ(names(report), (std::vector<std::string>{"h.0.attn, aten::tanh", ""}));
  EXPECT_EQ(report.largest[0].bytes, 6_MiB);
  EXPECT_EQ(report.largest[0].count, 3);
  EXPECT_THAT(to_string(report), HasSubstr("h.0.attn, aten::tanh, 3 blocks\n"));
  EXPECT_THAT(to_string(report), HasSubstr("not recorded, 1 block\n"));
}

// A loop of LibTorch without steps of this room: the graph is gone when the failure is caught.
TEST(OomReport, OfAPlainLoopSumsWhatTheAttemptHasReleased) {
  const sim::Simulation box = sim::simulate("256MiB", {.cublas_workspaces = false});
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  const torch::Tensor batch = torch::ones({1024, 2048}, card);  // 8 MiB
  const Failure failure = failure_of(card, [&] { net->forward(batch, 100).backward(); });
  EXPECT_EQ(failure.asked, 20_MiB);  // a segment for 8 MiB
  EXPECT_TRUE(failure.cached);
  const OomReport report = oom_report({.device = card, .failure = failure, .module = net.get()});
  EXPECT_EQ(report.total, 256_MiB);
  EXPECT_EQ(report.neighbours, 0_MiB);
  EXPECT_EQ(sum(report, Kind::gradients), 0_MiB);
  ASSERT_TRUE(report.released);
  const memory::GpuMemoryStats now = memory::get_gpu_memory_stats(card);
  EXPECT_NEAR(report.released->mib(), (now.max_allocated - now.allocated).mib(), 0.01);
  const Bytes half = (*report.released - 16_MiB) / 2;  // gradients do not shrink
  EXPECT_THAT(advice(report), HasSubstr("half the micro-batch"));
  EXPECT_THAT(advice(report),
              HasSubstr("bfloat16 for matrix products (autocast): up to " + to_string(half)));
  EXPECT_THAT(to_string(report), Not(HasSubstr("worker")));
}

TEST(OomReport, BeginsItsAdviceWithTheLargestHolder) {
  const sim::Simulation box = sim::simulate("1GiB");
  const c10::Device card = box.device(0);
  const sim::InjectionScope scope(box.card(0), sim::neighbour(0.5));
  const torch::Tensor ours = torch::empty({64, 1024, 1024}, card);
  const Failure failure = failure_of(card, [&] { (void)torch::empty({100, 1024, 1024}, card); });
  OomFacts facts{.device = card, .failure = failure};
  EXPECT_THAT(advice(oom_report(facts)), HasSubstr("end other processes: with the driver they "
                                                   "hold 512.0 MiB; `headroom who`"));
  facts.holders = {holder(4000, 100_MiB, gpu::HolderClass::other_user),
                   holder(::getpid(), 256_MiB, gpu::HolderClass::running),
                   holder(4242, 400_MiB, gpu::HolderClass::running)};
  const OomReport report = oom_report(facts);
  EXPECT_EQ(report.ours, 256_MiB);
  EXPECT_EQ(report.neighbours, 512_MiB);
  ASSERT_GE(report.advice.size(), 2U);
  EXPECT_EQ(report.advice[0].bytes, 400_MiB);
  EXPECT_EQ(report.advice[0].text,
            "end PID 4242 (python serve.py), which holds 400.0 MiB, or wait for its end");
  EXPECT_EQ(report.advice[1].text, "PID 4000 (python serve.py) holds 100.0 MiB: ask ann");
  EXPECT_THAT(advice(report), Not(HasSubstr(std::to_string(::getpid()))));
}

TEST(OomReport, AdvisesExpandableSegmentsForMemoryInPieces) {
  const sim::Simulation box = sim::simulate("1GiB");
  OomFacts facts{.device = box.device(0),
                 .failure = {.asked = 60_MiB, .free = 10_MiB, .cached = 70_MiB}};
  EXPECT_THAT(advice(oom_report(facts)),
              HasSubstr("PYTORCH_ALLOC_CONF=expandable_segments:True: 70.0 MiB were cached"));
  facts.failure.cached = 40_MiB;  // would not have sufficed
  EXPECT_THAT(advice(oom_report(facts)), Not(HasSubstr("expandable")));
  facts.failure.cached = 70_MiB;
  facts.failure.plan.allocator = "expandable_segments:True";
  EXPECT_THAT(advice(oom_report(facts)), Not(HasSubstr("expandable")));
}

TEST(OomReport, AdvisesASmallerModelWhereTheCardIsTooSmallForIt) {
  const sim::Simulation box = sim::simulate("36MiB");
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  const torch::Tensor state = torch::empty({2, 1024, 1024}, card);
  const Failure failure = failure_of(card, [&] { (void)torch::zeros_like(net->wide->weight); });
  OomFacts facts{.device = card, .failure = failure, .module = net.get(), .states = {state}};
  const OomReport report = oom_report(facts);
  ASSERT_FALSE(report.advice.empty());
  EXPECT_THAT(report.advice[0].text, HasSubstr("a smaller model"));
  EXPECT_EQ(report.advice[0].bytes, 44_MiB - 36_MiB);  // with the gradient to come
  net->wide->weight.set_requires_grad(false);
  EXPECT_THAT(advice(oom_report(facts)), Not(HasSubstr("a smaller model")));
}

TEST(OomReport, OfTheCpuNamesTensorsWithoutFiguresOfACard) {
  Wide net;
  const OomReport report = oom_report({.device = c10::kCPU, .failure = {}, .module = net.get()});
  EXPECT_EQ(sum(report, Kind::parameters), 16_MiB);
  EXPECT_EQ(report.total, std::nullopt);
  EXPECT_EQ(to_json(report)["total_bytes"], nullptr);
}

// ---- A step ----

// One step of 1024 rows on a small card.
struct SmallRun {
  const sim::Simulation box = sim::simulate("160MiB");
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  const std::unique_ptr<optim::Optimizer> adam =
      optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
  const StepOptions options;
  Step step{
      *net,
      *adam,
      {.loss = [net = net](const Tensors& rows) mutable { return net->forward(rows[0], 16); }},
      options};
  const Tensors batch{torch::zeros({1024, 2048})};

  explicit SmallRun(const StepOptions& given) : options(given) {}
  OomReport report() {
    EXPECT_THROW((void)step.run(batch), c10::OutOfMemoryError);
    return oom_report(facts_of(step, *step.last_failure(), options));
  }
};

TEST(OomReport, OfAStepAdvisesAPlanThatThenRuns) {
  StepOptions options{.ladder = {.min_micro_batch = 1024,
                                 .room = {.least = 2_MiB, .share = 0.02},
                                 .techniques = {},
                                 .allocator = false}};
  OomReport report;
  {
    SmallRun run(options);
    report = run.report();
    EXPECT_NE(run.step.prices(), nullptr) << run.step.why_unpriced();
  }
  ASSERT_EQ(report.would_fit.size(), 1U) << to_string(report);
  const auto& [plan, needed] = report.would_fit[0];
  EXPECT_LT(needed, *report.offered);
  EXPECT_GT(*report.needed, *report.offered);
  EXPECT_EQ(report.advice.at(0).bytes, *report.needed - needed);
  EXPECT_THAT(advice(report),
              HasSubstr("allow it with min_micro_batch=" + std::to_string(plan.micro_batch)));
  options.ladder = {.min_micro_batch = plan.micro_batch, .max_retries = 0};
  options.plan = plan;
  options.prices = false;
  SmallRun better(options);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(better.step.run(better.batch).attempts, 1);
}

// Prices for batches of 8 rows: so much for a micro-batch of 8, and of 4 and 2 rows.
void learn(Prices& prices, Plan plan, const std::array<Bytes, 3>& needed) {
  using Operation = allocator::Operation;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    plan.micro_batch = 8 >> i;
    prices.learn({.plan = plan,
                  .rows = 8,
                  .requests = {{.bytes = needed[i].count, .kind = Operation::Kind::allocate},
                               {.kind = Operation::Kind::free}}});
  }
}

TEST(OomReport, ListsTheLargestMicroBatchOfEachTechniqueAndWhatAllowsIt) {
  Prices prices({});
  learn(prices, {}, {900_MiB, 600_MiB, 450_MiB});
  learn(prices, {.techniques = {"checkpointing"}}, {650_MiB, 500_MiB, 425_MiB});
  const sim::Simulation box = sim::simulate("680MiB");
  OomFacts facts{.device = box.device(0),
                 .failure = {.work = {.rows = 8}, .asked = 100_MiB, .free = 50_MiB},
                 .prices = &prices,
                 .limits = {.max_retries = 0, .room = {.least = 0_B, .share = 0}}};
  const OomReport report = oom_report(facts);
  EXPECT_EQ(report.needed, 900_MiB);
  ASSERT_EQ(report.would_fit.size(), 2U);
  EXPECT_EQ(report.would_fit[0].plan, (Plan{.micro_batch = 4}));
  EXPECT_EQ(report.would_fit[0].needed, 600_MiB);  // five would not run
  EXPECT_EQ(report.would_fit[1].plan, (Plan{.micro_batch = 8, .techniques = {"checkpointing"}}));
  EXPECT_THAT(to_string(report), HasSubstr("    600.0 MiB  micro-batch 4, which would fit\n"));
  EXPECT_THAT(advice(report), HasSubstr("micro-batch 4 needs 600.0 MiB, 300.0 MiB less: allow it "
                                        "with max_retries=2\n"));
  facts.limits.min_micro_batch = 6;
  facts.limits.techniques.erase("checkpointing");
  EXPECT_THAT(advice(oom_report(facts)), HasSubstr("micro-batch 4 needs 600.0 MiB, 300.0 MiB "
                                                   "less: allow it with min_micro_batch=4\n"));
  EXPECT_THAT(advice(oom_report(facts)),
              HasSubstr("micro-batch 8, checkpointing needs 650.0 MiB, 250.0 MiB less: allow it "
                        "with \"checkpointing\" among the techniques\n"));
}

TEST(OomReport, SaysWhatLimitIsSetForTheProcess) {
  const sim::Simulation box = sim::simulate("1GiB");
  box.card(0).set_memory_fraction(0.25);
  const OomReport report =
      oom_report({.device = box.device(0), .failure = {.work = {.rows = 8}, .asked = 300_MiB}});
  EXPECT_EQ(report.limit, 256_MiB);
  EXPECT_EQ(report.offered, 256_MiB);
  EXPECT_THAT(to_string(report), HasSubstr("256.0 MiB  is the most that this process may hold"));
  EXPECT_EQ(to_json(report).at("limit_bytes"), (256_MiB).count);
}

TEST(OomReport, OfAStepThatNoPlanFitsSaysWhatIsMissing) {
  Prices prices({});
  learn(prices, {}, {900_MiB, 600_MiB, 450_MiB});
  const sim::Simulation box = sim::simulate("256MiB");
  const OomReport report = oom_report({.device = box.device(0),
                                       .failure = {.work = {.rows = 8}, .asked = 900_MiB},
                                       .prices = &prices});
  EXPECT_TRUE(report.would_fit.empty());
  ASSERT_TRUE(report.least);
  EXPECT_EQ(report.least->plan.micro_batch, 1);
  ASSERT_EQ(report.advice.size(), 1U);
  EXPECT_EQ(report.advice[0].bytes, report.least->needed - 256_MiB);
  EXPECT_THAT(report.advice[0].text, HasSubstr("a smaller model, or a larger card"));
}

TEST(OomReport, IsATextOfNarrowLinesAndAJsonOfBytes) {
  const sim::Simulation box = sim::simulate("256MiB");
  const c10::Device card = box.device(0);
  Wide net = libtorch::on(card, [] { return Wide(); });
  const Failure failure = failure_of(card, [&] {
    net->forward(torch::ones({1024, 2048}, card), 100).backward();
  });
  gpu::HolderReport neighbour = holder(4242, 6_GiB, gpu::HolderClass::orphan);
  neighbour.command = "python\n" + std::string(300, 'x');
  const OomReport report =
      oom_report({.device = card, .failure = failure, .module = net.get(), .holders = {neighbour}});
  const std::string text = to_string(report);
  EXPECT_THAT(text, ::testing::StartsWith("Out of memory on sim:0, 20.0 MiB asked, "));
  EXPECT_THAT(text, HasSubstr("\n     16.0 MiB  wide.weight\n"));
  EXPECT_THAT(text, HasSubstr("\n     6.00 GiB  of this by PID 4242 (python "));
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(cells(line), 100U) << line;
  const Json json = to_json(report);
  EXPECT_EQ(json["asked_bytes"], (20_MiB).count);
  EXPECT_EQ(json["alive"]["parameter_bytes"], (16_MiB).count);
  EXPECT_EQ(json["holders"][0]["pid"], 4242);
  EXPECT_EQ(json["advice"].size(), report.advice.size());
  EXPECT_EQ(json["needed_bytes"], nullptr);
}

}  // namespace
}  // namespace headroom::train
