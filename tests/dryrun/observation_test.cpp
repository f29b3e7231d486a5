// An observed program has the report that a dry run of its step has.
#include "headroom/dryrun/observation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <nlohmann/json.hpp>

#include "headroom/dryrun/dry_run.h"
#include "headroom/dryrun/module_calls.h"

namespace headroom::dryrun {
namespace {

using trace::Phase;

struct Program {
  explicit Program(c10::Device device) {
    net->push_back(torch::nn::Linear(64, 256));
    net->push_back(torch::nn::GELU());
    net->push_back(torch::nn::Linear(256, 8));
    net->to(device);
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters());
    batch = at::ones({128, 64}, device);
  }
  void step() {
    optimizer->zero_grad();
    net->forward(batch).square().mean().backward();
    optimizer->step();
  }
  [[nodiscard]] Subject subject() {
    Subject subject{.step = [this] { step(); }, .inputs = {batch}};
    for (const auto& one : net->named_parameters())
      subject.parameters.emplace_back(one.key(), one.value());
    return subject;
  }

  torch::nn::Sequential net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  at::Tensor batch;
};

TEST(Observation, EqualsADryRunOfTheStep) {
  const trace::Report expected = [] {
    const auto box = sim::simulate("24GiB");
    Program program(box.device(0));
    return dry_run(box.card(0), program.subject());
  }();
  const auto box = sim::simulate("24GiB");
  std::string line = "train.py:1";
  Observation watched(box.card(0), [&] { return std::string_view(line); });
  Program program(box.device(0));
  watched.know(program.subject());
  for (std::uint32_t step = 1; step <= 2; ++step) {
    watched.begin_step(step);
    line = "train.py:" + std::to_string(step + 1);
    program.step();
    watched.end_optimizer();
    watched.end_step();
  }
  const trace::Report report = watched.end({});
  EXPECT_EQ(report.peak, expected.peak);
  EXPECT_EQ(report.at_peak, expected.at_peak);
  EXPECT_EQ(report.per_step.size(), 2U);
  EXPECT_EQ(report.per_step[1].allocated, expected.per_step[1].allocated);
  ASSERT_FALSE(report.by_module.empty());
  EXPECT_EQ(report.by_module[1].name, expected.by_module[1].name);
  EXPECT_EQ(report.line_at_peak, "train.py:" + std::to_string(report.peak.step + 1));
  Bytes by_line;
  for (const trace::LineBytes& one : report.by_line) by_line += one.bytes;
  EXPECT_EQ(by_line + report.at_peak.rounding, report.peak.allocated);
  const Json json = trace::to_json(report);
  EXPECT_EQ(trace::to_json(trace::report_from_json(json)), json);
}

TEST(Observation, TellsEvaluationFromTraining) {
  const auto box = sim::simulate("24GiB");
  Observation watched(box.card(0), [] { return std::string_view("eval.py:1"); });
  Program program(box.device(0));
  watched.know(program.subject());
  watched.begin_step(1);
  watched.evaluate(true);
  {
    const torch::NoGradGuard no_graph;
    (void)program.net->forward(at::ones({4096, 64}, box.device(0)));
  }
  watched.evaluate(false);
  program.step();
  watched.end_optimizer();
  watched.end_step();
  const trace::Report report = watched.end({});
  EXPECT_EQ(report.peak.phase, Phase::evaluation);
  std::vector<Phase> phases;
  for (const trace::PhasePeak& one : report.by_phase) phases.push_back(one.phase);
  EXPECT_EQ(phases, (std::vector{Phase::init, Phase::forward, Phase::backward, Phase::optimizer,
                                 Phase::evaluation}));
}

// Work with a graph between backward and optimizer, larger than a sum of losses, began the forward
// pass of the next step: the optimizer's states were activations.
TEST(Observation, KnowsAnOptimizerAfterOtherWork) {
  const auto box = sim::simulate("24GiB");
  Observation watched(box.card(0), [] { return std::string_view("train.py:1"); });
  Program program(box.device(0));
  watched.know(program.subject());
  for (std::uint32_t step = 1; step <= 2; ++step) {
    watched.begin_step(step);
    const at::Tensor out = program.net->forward(program.batch);
    out.square().mean().backward();
    const at::Tensor more = out.exp();
    watched.begin_optimizer();
    program.optimizer->step();
    watched.end_optimizer();
    watched.end_step();
  }
  const trace::Report report = watched.end({});
  EXPECT_EQ(report.peak.step, 2U);
  EXPECT_EQ(report.at_peak.optimizer, Bytes{2 * 4 * (65 * 256 + 257 * 8)});
  EXPECT_EQ(report.by_phase.back().phase, Phase::optimizer);
}

struct ModuleScope {
  explicit ModuleScope(const char* name) { enter_module(name); }
  ~ModuleScope() { leave_module(); }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
};

// What an attention's own code made, 397 MiB of products and probabilities, was booked to the
// projection that ran before: its operators use no parameter.
TEST(Observation, BooksAModulesOwnCodeToIt) {
  const auto box = sim::simulate("24GiB");
  Observation watched(box.card(0), [] { return std::string_view("train.py:1"); });
  torch::nn::Linear values(64, 64);
  values->to(box.device(0));
  const at::Tensor x = at::ones({2048, 64}, box.device(0));
  watched.know(
      {.step = {},
       .parameters = {{"attn.values.weight", values->weight}, {"attn.values.bias", values->bias}},
       .modules = {"", "attn", "attn.values"}});
  watched.begin_step(1);
  at::Tensor loss;
  {
    const ModuleScope whole("");
    const ModuleScope attention("attn");
    at::Tensor v;
    {
      const ModuleScope projection("attn.values");
      v = values->forward(x);
    }
    loss = v.mm(v.t()).softmax(-1).sum();
  }
  loss.backward();
  watched.end_step();
  const trace::Report report = watched.end({});
  std::map<std::string, Bytes> peaks;
  for (const trace::ModulePeak& one : report.by_module) peaks[one.name] = one.peak;
  const Bytes weights{4 * 65 * 64}, output{4 * 2048 * 64}, scores{4 * 2048 * 2048};
  EXPECT_GE(peaks["attn"], scores + scores);
  EXPECT_GE(peaks["attn.values"], weights + output);
  EXPECT_LT(peaks["attn.values"], scores);
}

TEST(Observation, EndsWithTheObserverThatWasThere) {
  const auto box = sim::simulate("24GiB");
  {
    const Observation watched(box.card(0), [] { return std::string_view(); });
    EXPECT_NE(box.card(0).observer(), nullptr);
  }
  EXPECT_EQ(box.card(0).observer(), nullptr);
}

}  // namespace
}  // namespace headroom::dryrun
