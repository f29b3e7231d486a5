#include "headroom/libtorch/modules.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/sim/simulate.h"
#include "tests/libtorch/computing.h"

namespace headroom::libtorch {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

// An embedding whose weight is the head's, too.
struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { reset(); }
  void reset() override {
    embed = register_module("embed", torch::nn::Embedding(8, 4));
    head = register_parameter("head", embed->weight);
  }
  void tie_weights() { head = parameters_["head"] = embed->weight; }
  Tensor forward(const Tensor& tokens) { return embed(tokens).matmul(head.t()); }
  torch::nn::Embedding embed{nullptr};
  Tensor head;
};

// Two parameters that are parts of one piece of memory, as a flat optimizer lays them out.
struct FlatImpl : torch::nn::Cloneable<FlatImpl> {
  FlatImpl() {
    reset();
    const torch::NoGradGuard no_grad;
    const Tensor flat = torch::arange(12, torch::kFloat);
    first.set_data(flat.narrow(0, 0, 4));
    second.set_data(flat.narrow(0, 4, 8).view({2, 4}).t());
  }
  void reset() override {
    first = register_parameter("first", torch::zeros({4}));
    second = register_parameter("second", torch::zeros({4, 2}));
  }
  Tensor first, second;
};

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::ReLU(), torch::nn::Linear(8, 2));
}

std::vector<Tensor> values_of(const torch::nn::Module& module) {
  std::vector<Tensor> values;
  for (const Tensor& tensor : module.parameters()) values.push_back(tensor.detach().cpu().clone());
  for (const Tensor& tensor : module.buffers()) values.push_back(tensor.detach().cpu().clone());
  return values;
}

void expect_equal(const std::vector<Tensor>& one, const std::vector<Tensor>& other) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(other[i])) << i;
}

void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int steps) {
  const torch::Device device = net->parameters()[0].device();
  for (int step = 0; step < steps; ++step) {
    const Tensor batch = torch::linspace(-1, 1, 24 + step).slice(0, 0, 24).view({6, 4}).to(device);
    optimizer.zero_grad();
    net->forward(batch).pow(2).mean().backward();
    optimizer.step();
  }
}

// ---- Moving ----

TEST(MoveModule, ThereAndBackKeepsEveryBit) {
  const sim::Simulation box = computing("2x1GiB");
  torch::nn::Sequential net = small_net();
  net->forward(torch::randn({16, 4}));  // so that the running statistics are no mere zeros
  const std::vector<Tensor> before = values_of(*net);
  for (const torch::Device device : {box.device(0), box.device(1), torch::Device("cpu")}) {
    move(*net, device);
    for (const Tensor& tensor : net->parameters()) EXPECT_EQ(tensor.device(), device);
    for (const Tensor& tensor : net->buffers()) EXPECT_EQ(tensor.device(), device);
    expect_equal(values_of(*net), before);
  }
  EXPECT_EQ(allocated(box.card(0)), 0);
  EXPECT_EQ(allocated(box.card(1)), 0);
}

TEST(MoveModule, ReachesTheMembersThatForwardUses) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential net = small_net();
  const Tensor batch = torch::randn({16, 4});
  net->eval();
  const Tensor on_host = net->forward(batch);
  move(*net, box.device(0));
  EXPECT_TRUE(net->forward(batch.to(box.device(0))).cpu().equal(on_host));
}

TEST(MoveModule, MovesTheFlatWeightsOfARecurrentLayer) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::LSTM net(torch::nn::LSTMOptions(4, 3).num_layers(2));
  move(*net, box.device(0));
  for (const Tensor& weight : net->all_weights()) EXPECT_EQ(weight.device(), box.device(0));
}

TEST(MoveModule, KeepsTiedWeightsOneTensor) {
  const sim::Simulation box = computing("1x1GiB");
  TiedImpl net;
  move(net, box.device(0));
  EXPECT_TRUE(net.head.is_same(net.embed->weight));
  EXPECT_EQ(allocated(box.card(0)), 512);  // 8 * 4 floats, once
}

TEST(MoveModule, KeepsSharedMemoryShared) {
  const sim::Simulation box = computing("1x1GiB");
  FlatImpl net;
  const std::vector<Tensor> before = values_of(net);
  move(net, box.device(0));
  EXPECT_TRUE(net.first.storage().is_alias_of(net.second.storage()));
  EXPECT_EQ(net.second.storage_offset(), 4);
  EXPECT_EQ(net.second.strides(), torch::IntArrayRef({1, 4}));
  expect_equal(values_of(net), before);
}

TEST(MoveModule, MovesGradientsAndRequiresGrad) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Linear net(4, 2);
  net->bias.set_requires_grad(false);
  net->forward(torch::ones({3, 4})).sum().backward();
  const Tensor gradient = net->weight.grad().clone();
  move(*net, box.device(0));
  EXPECT_EQ(net->weight.grad().device(), box.device(0));
  EXPECT_TRUE(net->weight.grad().cpu().equal(gradient));
  EXPECT_TRUE(net->weight.requires_grad());
  EXPECT_FALSE(net->bias.requires_grad());
  net->forward(torch::ones({3, 4}, box.device(0)))
      .sum()
      .backward();  // sums into the one that moved
  EXPECT_TRUE(net->weight.grad().cpu().equal(2 * gradient));
}

TEST(MoveModule, IsSeenByAnOptimizerMadeBefore) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential moved = small_net();
  torch::nn::Sequential stayed = small_net();
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < moved->parameters().size(); ++i)
      stayed->parameters()[i].copy_(moved->parameters()[i]);
  }
  torch::optim::AdamW one(moved->parameters(), 0.1), other(stayed->parameters(), 0.1);
  train(moved, one, 2);
  train(stayed, other, 2);
  move(*moved, one, box.device(0));
  train(moved, one, 2);
  train(stayed, other, 2);
  expect_equal(values_of(*moved), values_of(*stayed));
}

TEST(MoveOptimizer, KnowsEveryOneOfLibTorchThatStepsWithoutAClosure) {
  const sim::Simulation box = computing("1x1GiB");
  const auto moves = [&](auto make) {
    torch::nn::Sequential net = small_net();
    auto optimizer = make(net->parameters());
    train(net, *optimizer, 1);
    move(*net, *optimizer, box.device(0));
    train(net, *optimizer, 1);
    EXPECT_EQ(net->parameters()[0].device(), box.device(0));
  };
  using namespace torch::optim;
  using Tensors = std::vector<Tensor>;
  moves([](Tensors p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9)); });
  moves([](Tensors p) { return std::make_unique<Adam>(p, AdamOptions(0.1).amsgrad(true)); });
  moves([](Tensors p) { return std::make_unique<AdamW>(p, AdamWOptions(0.1)); });
  moves([](Tensors p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.1)); });
  moves([](Tensors p) {
    return std::make_unique<RMSprop>(p, RMSpropOptions(0.1).centered(true).momentum(0.9));
  });
}

TEST(MoveOptimizer, MovesTheHistoryOfLbfgs) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Linear net(4, 1);
  torch::optim::LBFGS optimizer(net->parameters());
  const auto step = [&](const torch::Device device) {
    return optimizer.step([&] {
      optimizer.zero_grad();
      const Tensor loss = (net->forward(torch::eye(4, device)) - 1).pow(2).mean();
      loss.backward();
      return loss;
    });
  };
  step(torch::kCPU);
  move(*net, optimizer, box.device(0));
  step(box.device(0));
  EXPECT_EQ(net->weight.device(), box.device(0));
}

TEST(MoveModule, LeavesEverythingAsItWasWhenTheCardIsFull) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential net = small_net();
  const std::vector<Tensor> before = values_of(*net);
  sim::Card& card = box.card(0);
  const std::uint64_t last = card.requests() + net->parameters().size() + net->buffers().size();
  card.inject([&](const sim::Request& request) { return request.number == last; });
  EXPECT_THROW(move(*net, box.device(0)), c10::OutOfMemoryError);
  card.inject({});
  for (const Tensor& tensor : net->parameters()) EXPECT_TRUE(tensor.is_cpu());
  for (const Tensor& tensor : net->buffers()) EXPECT_TRUE(tensor.is_cpu());
  expect_equal(values_of(*net), before);
  net->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_EQ(allocated(card), 0);
}

TEST(MoveModule, TakesTheMemoryOfItsTensorsInShapeOnlyMode) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  torch::nn::Linear net(1024, 1024);
  move(*net, box.device(0));
  EXPECT_EQ(allocated(box.card(0)), (4 << 20) + 4096);
  move(*net, box.device(1));
  EXPECT_EQ(allocated(box.card(0)), 0);
  EXPECT_EQ(allocated(box.card(1)), (4 << 20) + 4096);
}

TEST(MoveModule, DoesNothingOnTheDeviceWhereItIs) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Linear net = on(box.device(0), [] { return torch::nn::Linear(4, 4); });
  const void* const before = net->weight.storage().unsafeGetStorageImpl();
  move(*net, torch::Device("sim"));
  EXPECT_EQ(net->weight.storage().unsafeGetStorageImpl(), before);
}

// Silence would be wrong gradients, or a crash deep in a kernel.
TEST(MoveModule, LetsAutogradRefuseAGraphFromBeforeTheMove) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
  const Tensor loss = net->forward(torch::ones({2, 4})).sum();
  move(*net, box.device(0));
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(MoveModule, RefusesTensorsWithAutogradHistoryByName) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Linear net(2, 2);
  net->register_buffer("scaled", net->weight * 2);
  try {
    move(*net, box.device(0));
    FAIL() << "the buffer has a history";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("scaled"));
  }
  EXPECT_TRUE(net->weight.is_cpu());
}

// ---- Cloning ----

TEST(CloneModule, GivesTheSameClassAndValuesOnTheOtherCard) {
  const sim::Simulation box = computing("2x1GiB");
  torch::nn::Sequential net = on(box.device(0), [] { return small_net(); });
  net->forward(torch::randn({16, 4}).to(box.device(0)));
  const auto copy = clone(*net, box.device(1));
  static_assert(std::is_same_v<decltype(copy), const std::shared_ptr<torch::nn::SequentialImpl>>);
  for (const Tensor& tensor : copy->parameters()) EXPECT_EQ(tensor.device(), box.device(1));
  for (const Tensor& tensor : copy->buffers()) EXPECT_EQ(tensor.device(), box.device(1));
  expect_equal(values_of(*copy), values_of(*net));
}

TEST(CloneModule, SharesNothingWithTheOriginal) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Linear net = on(box.device(0), [] { return torch::nn::Linear(4, 4); });
  const std::vector<Tensor> before = values_of(*net);
  const auto copy = clone(*net, torch::kCPU);
  {
    const torch::NoGradGuard no_grad;
    copy->weight.zero_();
  }
  expect_equal(values_of(*net), before);
}

TEST(CloneModule, KeepsTiesSharedMemoryAndRequiresGrad) {
  const sim::Simulation box = computing("1x1GiB");
  TiedImpl tied;
  const auto other_tied = clone(tied, box.device(0));
  EXPECT_TRUE(other_tied->head.is_same(other_tied->embed->weight));

  FlatImpl flat;
  flat.first.set_requires_grad(false);
  const auto other_flat = clone(flat, box.device(0));
  EXPECT_TRUE(other_flat->first.storage().is_alias_of(other_flat->second.storage()));
  EXPECT_FALSE(other_flat->first.requires_grad());
  EXPECT_TRUE(other_flat->second.requires_grad());
  expect_equal(values_of(*other_flat), values_of(flat));
}

struct TiedLaterImpl : torch::nn::Cloneable<TiedLaterImpl> {
  TiedLaterImpl() {
    reset();
    two.set_data(one);
    parameters_["two"] = two = one;
  }
  void reset() override {
    one = register_parameter("one", torch::ones({2}));
    two = register_parameter("two", torch::ones({2}));
  }
  Tensor one, two;
};

TEST(CloneModule, RefusesAClassWhoseCloneWouldNotTieItsWeights) {
  const TiedLaterImpl net;
  EXPECT_THROW((void)clone(net, torch::kCPU), UsageError);
}

TEST(CloneModule, WorksShapeOnly) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  torch::nn::TransformerEncoderLayer net =
      on(box.device(0), [] { return torch::nn::TransformerEncoderLayer(64, 4); });
  const auto copy = clone(*net, box.device(1));
  EXPECT_EQ(allocated(box.card(1)), allocated(box.card(0)));
}

}  // namespace
}  // namespace headroom::libtorch
