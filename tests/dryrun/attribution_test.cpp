#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "headroom/libtorch/autocast.h"
#include "tests/dryrun/counted_net.h"

namespace headroom::dryrun {
namespace {

using namespace headroom::literals;
using trace::Category;
using trace::Phase;

TEST(Attribution, NamesModulesOfForwardAndBackward) {
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  const trace::Report report = it.run(optimizer);
  std::set<std::string> forward, backward;
  for (const trace::Event& event : report.trace->events) {
    if (event.kind != trace::Kind::alloc) continue;
    const std::string module(report.trace->names.text(event.module));
    if (event.phase == Phase::forward) forward.insert(module);
    if (event.phase == Phase::backward && event.category == Category::gradient)
      backward.insert(module);
  }
  EXPECT_THAT(forward, testing::ElementsAre("first", "second"));
  EXPECT_THAT(backward, testing::ElementsAre("first", "second"));
}

// Under autocast a product sees a copy of the weight, or of a view of it. Once only modules whose
// weights it leaves alone, norms and embeddings, had a name, and a head's logits were the last
// norm's.
TEST(Attribution, NamesModulesUnderAutocast) {
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  for (const std::int64_t rank :
       {2, 3}) {  // of three dimensions torch::nn::Linear turns its weight
    const auto loss = [rank](NetImpl& net, const torch::Tensor& x) {
      const libtorch::AutocastScope low(x.device().type(), torch::kBFloat16);
      return loss_of(net, rank == 2 ? x : x.unsqueeze(0));
    };
    const trace::Report report = dry_run(*it.net, it.batch, loss, optimizer);
    std::vector<std::string> products;
    std::multiset<std::string> casts;
    for (const trace::Event& event : report.trace->events) {
      if (event.kind != trace::Kind::alloc || event.phase != Phase::forward) continue;
      const std::string_view operation = report.trace->names.text(event.operation);
      const std::string module(report.trace->names.text(event.module));
      if (operation == "aten::addmm" || operation == "aten::mm") products.push_back(module);
      if (operation == "aten::_to_copy") casts.insert(module);
    }
    EXPECT_THAT(products, testing::ElementsAre("first", "second", "first", "second"));
    EXPECT_GE(casts.count("first"), 2U);  // once in each of two steps
    EXPECT_GE(casts.count("second"), 2U);
  }
}

// What training loops do with a loss after its backward pass, to report it.
trace::Report report_with_use_of_loss(const std::function<void(const torch::Tensor&)>& use) {
  OnACard it;
  torch::optim::AdamW optimizer(it.net->parameters());
  const auto step = [&] {
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(*it.net, it.batch);
    loss.backward();
    use(loss);
    optimizer.step();
  };
  return dry_run(it.box.card(0), {.step = step, .inputs = {it.batch}});
}

// It began the forward pass of the next step, and the optimizer's states were activations.
TEST(Attribution, TakesNoCopyOfALossForAForwardPass) {
  const auto report =
      report_with_use_of_loss([](const torch::Tensor& loss) { (void)loss.to(torch::kDouble); });
  EXPECT_EQ(report.at_peak.optimizer, 2 * (8_MiB + 8_KiB));
}

// So did the sum of losses of a GAN's discriminator, and of an epoch.
TEST(Attribution, TakesNoSumOfLossesForAForwardPass) {
  torch::Tensor total = torch::zeros({});
  const auto report =
      report_with_use_of_loss([&](const torch::Tensor& loss) { total = total + loss; });
  EXPECT_EQ(report.peak.phase, Phase::optimizer);
  EXPECT_EQ(report.at_peak.optimizer, 2 * (8_MiB + 8_KiB));
}

// As language models tie them: the same weight embeds tokens and makes logits of states.
struct TiedNet : torch::nn::Module {
  TiedNet() {
    table = register_module("table", std::make_shared<Part>());
    head = register_module("head", std::make_shared<Part>());
    table->weight = table->register_parameter("weight", torch::empty({512, 64}));
    head->weight = head->register_parameter("weight", table->weight);
  }
  struct Part : torch::nn::Module {
    torch::Tensor weight;
  };
  std::shared_ptr<Part> table, head;
};

TEST(Attribution, TellsAnEmbeddingFromTheHeadThatSharesItsWeight) {
  const sim::Simulation box = sim::simulate("1x24GiB");
  TiedNet net = libtorch::on(box.device(0), [] { return TiedNet(); });
  const auto indices = torch::zeros({128}, torch::dtype(torch::kLong).device(box.device(0)));
  const auto loss = [](TiedNet& model, const torch::Tensor& tokens) {
    const auto states = torch::embedding(model.table->weight, tokens);
    return torch::linear(states, model.head->weight).sum();
  };
  torch::optim::SGD optimizer({net.table->weight}, 0.1);
  const trace::Report report = dry_run(net, indices, loss, optimizer);
  std::set<std::string> held;
  for (const trace::LiveTensor& tensor : report.biggest) {
    held.insert(tensor.module);
    if (tensor.category != Category::parameter) continue;
    EXPECT_EQ(tensor.module, "table");
  }
  EXPECT_THAT(held, testing::IsSupersetOf({"table", "head"}));
  for (const trace::Event& event : report.trace->events) {
    if (report.trace->names.text(event.operation) != "aten::mm") continue;
    EXPECT_EQ(report.trace->names.text(event.module), "head");
  }
}

// The module that holds the most is not the one whose operator happened to run last before the
// optimizer made its states, 16 MiB.
TEST(Attribution, CountsNoStatesOfTheOptimizerForTheLastModule) {
  OnACard it;
  torch::optim::AdamW optimizer(it.net->parameters());
  const trace::Report report = it.run(optimizer);
  for (const trace::ModulePeak& module : report.by_module) {
    if (module.name.empty()) continue;  // everything
    EXPECT_LT(module.peak, 20_MiB) << module.name;
  }
}

// Phase, module and category of each request of a run of two steps.
std::vector<std::string> requests_of_a_run() {
  OnACard it;
  torch::optim::AdamW optimizer(it.net->parameters());
  const trace::Report report = it.run(optimizer);
  std::vector<std::string> all;
  for (const trace::Event& event : report.trace->events) {
    if (event.kind != trace::Kind::alloc) continue;
    std::string text(to_string(event.phase));
    text.append(" ").append(report.trace->names.text(event.module)).append(" ");
    all.push_back(text.append(to_string(event.category)));
  }
  return all;
}

// Backward passes may run in the thread that asks for them. Once the optimizer's first state then
// counted to the backward pass, and the second step's gradients had other modules.
TEST(Attribution, IsTheSameWithoutAutogradsThreads) {
  const std::vector<std::string> with_threads = requests_of_a_run();
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  state.set_multithreading_enabled(false);
  const std::vector<std::string> without = requests_of_a_run();
  state.set_multithreading_enabled(true);
  EXPECT_EQ(without, with_threads);
}

}  // namespace
}  // namespace headroom::dryrun
