// Adapters for a module of one's own with layers of torch::nn. Once add_lora said of one with three
// torch::nn::Linear "this model has no linear layers": what replaces a registered child does not
// reach a typed member, and forward() is not virtual.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <sstream>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/lora.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(3);
    table = register_module("table", torch::nn::Embedding(10, 6));
    q = register_module("q", torch::nn::Linear(6, 6));
    v = register_module("v", torch::nn::Linear(torch::nn::LinearOptions(6, 4).bias(false)));
    wide = register_module("wide", torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 5, 3).padding(1)));
    flat = register_module("flat", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, {3, 2})
                                                         .stride(2)
                                                         .padding_mode(torch::kCircular)
                                                         .padding(1)));
  }
  Tensor forward(const Tensor& tokens) {
    const Tensor states = v(torch::tanh(q(table(tokens))));  // [batch, 6, 4]
    return flat(wide(states.transpose(1, 2)).unsqueeze(1));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear q{nullptr}, v{nullptr};
  torch::nn::Conv1d wide{nullptr};
  torch::nn::Conv2d flat{nullptr};
};

const std::vector<std::string> kAll = {"table", "q", "v", "wide", "flat"};

Tensor tokens(torch::Device device = torch::kCPU) {
  return torch::arange(12, torch::kLong).remainder(10).view({2, 6}).to(device);
}

// The zero halves get values, so that every adapter counts.
void fill(const Lora& lora) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  for (auto [name, parameter] : lora.parameters())
    parameter.copy_(torch::randn(parameter.sizes()).mul_(0.3));
}

std::vector<Tensor> trained(const torch::nn::Module& net) {
  std::vector<Tensor> all;
  for (const Tensor& one : net.parameters())
    if (one.requires_grad()) all.push_back(one);
  return all;
}

class LoraOfOneLayer : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OfEachKind, LoraOfOneLayer, testing::ValuesIn(kAll));

TEST_P(LoraOfOneLayer, ChangesTheOutputAsItLearnsAndLeavesTheBaseAlone) {
  Net net;
  const Tensor before = net.forward(tokens());
  const Tensor weight = net.named_parameters()[GetParam() + ".weight"], kept = weight.clone();
  const Lora lora = add_lora(net, {.rank = 2, .alpha = 4, .targets = {GetParam()}});
  EXPECT_THAT(lora.layers(), ElementsAre(GetParam()));
  EXPECT_TRUE(net.forward(tokens()).equal(before));
  torch::optim::SGD optimizer(trained(net), 0.5);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    net.forward(tokens()).pow(2).sum().backward();
    optimizer.step();
  }
  for (const auto& [name, parameter] : lora.parameters())
    EXPECT_GT(parameter.grad().abs().sum().item<float>(), 0) << name;
  EXPECT_FALSE(net.forward(tokens()).allclose(before));
  EXPECT_TRUE(weight.equal(kept));
  EXPECT_FALSE(weight.grad().defined());
}

TEST_P(LoraOfOneLayer, MergedGivesTheSameAndTakesItselfOffAgain) {
  Net net;
  const Tensor plain = net.forward(tokens());
  Lora lora = add_lora(net, {.rank = 3, .alpha = 2, .targets = {GetParam()}});
  fill(lora);
  const Tensor with = net.forward(tokens());
  EXPECT_FALSE(with.allclose(plain));
  lora.merge();
  EXPECT_TRUE(net.forward(tokens()).allclose(with, 1e-4, 1e-5));
  lora.unmerge();
  EXPECT_TRUE(net.forward(tokens()).allclose(with, 1e-4, 1e-5));
}

TEST_P(LoraOfOneLayer, CountsWithoutAGraphAndInOtherThreads) {
  Net net;
  fill(add_lora(net, {.targets = {GetParam()}}));
  const Tensor with = net.forward(tokens());
  {
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(net.forward(tokens()).equal(with));
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(net.forward(tokens()).equal(with));
  }
  Tensor elsewhere;
  std::thread([&] { elsewhere = net.forward(tokens()); }).join();
  EXPECT_TRUE(elsewhere.equal(with));
}

// Once under set_data the new data's keys took the place of the weight's, and the adapter was gone.
TEST_P(LoraOfOneLayer, StaysWhereTheModuleMovesAndIsLoadedInto) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Net net;
  fill(add_lora(net, {.targets = {GetParam()}}));
  const Tensor with = net.forward(tokens());
  net.to(torch::kDouble);
  EXPECT_TRUE(net.forward(tokens()).to(torch::kFloat).allclose(with, 1e-4, 1e-5));
  net.to(torch::kFloat);
  net.to(box.device(0));
  EXPECT_TRUE(net.forward(tokens(box.device(0))).cpu().equal(with));
  net.forward(tokens(box.device(0))).pow(2).sum().backward();
  for (const Tensor& one : trained(net)) EXPECT_TRUE(one.grad().defined());
  net.to(torch::kCPU);
  EXPECT_TRUE(net.forward(tokens()).equal(with));
}

// As in nanoGPT's and timm's: one layer makes queries, keys and values. Once only transformers'
// names for it were known.
TEST(LoraOfOwnModule, TakesALayerThatMakesSeveralAtOnceForEach) {
  for (const char* name : {"qkv", "Wqkv", "c_attn"}) {
    torch::nn::Module net;
    net.register_module(name, torch::nn::Linear(4, 12));
    EXPECT_THAT(add_lora(net).layers(), ElementsAre(name));
  }
}

TEST(LoraOfOwnModule, TrainsUnderBothKindsOfCheckpointingAndByTheCardsThreads) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const auto gradients = [&](Recompute how) {
    Net net;
    const Lora lora = add_lora(net, {.targets = {"v", "wide"}});
    fill(lora);
    net.to(box.device(0));
    const Tensor states = net.table(tokens(box.device(0))).detach().requires_grad_(true);
    const auto part = [&](const Tensor& x) { return net.wide(net.v(x).transpose(1, 2)); };
    checkpointed(how, part, states).pow(2).sum().backward();
    std::vector<Tensor> all;
    for (const auto& [name, parameter] : lora.parameters()) all.push_back(parameter.grad().cpu());
    return all;
  };
  const std::vector<Tensor> plain = gradients(Recompute::none);
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
    for (std::size_t i = 0; i < plain.size(); ++i)
      EXPECT_TRUE(gradients(how)[i].equal(plain[i])) << i;
}

TEST(LoraOfOwnModule, TakesNoMoreMemoryThanItsTensors) {
  const sim::Simulation box = sim::simulate("1GiB");
  torch::nn::Sequential net(torch::nn::Linear(1024, 1024));
  net->to(box.device(0));
  const auto allocated = [&] { return box.card(0).statistics().allocated_bytes.all.current; };
  const std::int64_t before = allocated();
  (void)add_lora(*net, {.rank = 8, .targets = {"0"}});
  EXPECT_EQ(allocated() - before, 2 * 8 * 1024 * 4);
}

TEST(LoraOfOwnModule, LeavesSavingPrintingAndAllOtherOperatorsAsTheyWere) {
  const auto net = std::make_shared<Net>(), other = std::make_shared<Net>();
  fill(add_lora(*net, {.targets = kAll}));
  (void)add_lora(*other, {.targets = kAll});
  std::ostringstream text;
  text << net->q->weight;
  EXPECT_THAT(text.str(), HasSubstr("CPUFloatType{6,6}"));
  EXPECT_TRUE(net->q->weight.sum().equal(net->q->weight.clone().sum()));
  std::stringstream file;
  torch::save(net, file);
  std::shared_ptr<Net> loaded = other;
  torch::load(loaded, file);
  EXPECT_TRUE(other->forward(tokens()).equal(net->forward(tokens())));
}

TEST(LoraOfOwnModule, EndsWithTheModel) {
  std::optional<Lora> lora;
  {
    Net net;
    lora = add_lora(net, {.targets = {"q"}});
  }
  EXPECT_THROW(lora->merge(), UsageError);
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> a(
      lora->parameters().front().second.getIntrusivePtr());
  lora.reset();
  EXPECT_TRUE(a.expired());
}

TEST(LoraOfOwnModule, RefusesUnsupportedLayersByName) {
  const auto refused = [](auto layer, const char* why) {
    torch::nn::Module net;
    net.register_module("layer", layer);
    EXPECT_THAT([&] { (void)add_lora(net, {.targets = {"layer"}}); },
                ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("layer"), HasSubstr(why))));
  };
  refused(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).groups(2)), "in groups");
  refused(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 4).max_norm(1)), "max_norm");
  Net tied;
  tied.register_module("twin", torch::nn::Linear(6, 6))->weight = tied.q->weight;
  EXPECT_THAT([&] { (void)add_lora(tied, {.targets = {"q"}}); },
              ThrowsMessage<UsageError>(HasSubstr("that of twin, too")));
  Net twice;
  (void)add_lora(twice, {.targets = {"q"}});
  EXPECT_THAT([&] { (void)add_lora(twice, {.targets = {"q"}}); },
              ThrowsMessage<UsageError>(HasSubstr("which has one")));
}

TEST(LoraOfOwnModule, RefusesALayerTwiceAndLeavesTheModelAsItWas) {
  Net net;
  EXPECT_THAT(
      [&] {
        (void)add_lora_to(net, {{.name = "q"}, {.name = "q"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("q, named twice")));
  net.register_module("again", net.q);
  EXPECT_THAT(
      [&] {
        (void)add_lora(net, {.targets = {"q", "again"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("again, which is the same layer as q")));
  EXPECT_THAT([&] { (void)add_lora(net, {.alpha = NAN, .targets = {"q"}}); },
              ThrowsMessage<UsageError>(HasSubstr("a finite alpha")));
  for (const torch::Tensor& parameter : net.parameters()) EXPECT_TRUE(parameter.requires_grad());
  EXPECT_TRUE(net.q->children().empty());
}

}  // namespace
}  // namespace headroom::nn
