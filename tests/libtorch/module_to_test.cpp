// Once `net->to(device)`, the line that every LibTorch program has, threw "incompatible tensor
// type" on simulated cards, and so did torch::load with a device and TorchScript's `to`.
#include <gmock/gmock.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <sstream>

#include "headroom/libtorch/on.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/libtorch/computing.h"

namespace headroom::libtorch {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

torch::nn::Sequential net_of_8() {
  return torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Linear(8, 2));
}

std::vector<Tensor> values_in(const torch::nn::Sequential& net) {
  std::vector<Tensor> all = net->parameters();
  for (const Tensor& buffer : net->buffers()) all.push_back(buffer);
  return all;
}

void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer) {
  const Tensor batch = torch::linspace(-1, 1, 32).view({4, 8}).to(net->parameters()[0].device());
  optimizer.zero_grad();
  net->forward(batch).pow(2).mean().backward();
  optimizer.step();
}

void expect_equal(const torch::nn::Sequential& one, const torch::nn::Sequential& other) {
  for (std::size_t i = 0; i < values_in(one).size(); ++i)
    EXPECT_TRUE(values_in(one)[i].cpu().equal(values_in(other)[i].cpu())) << i;
}

void copy_values(const torch::nn::Sequential& from, const torch::nn::Sequential& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_in(from).size(); ++i)
    values_in(to)[i].copy_(values_in(from)[i]);
}

TEST(ModuleTo, TrainsOnTheCardAsOnTheCpuAndComesBack) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential moved = net_of_8(), stayed = net_of_8();
  copy_values(stayed, moved);
  torch::optim::AdamW one(moved->parameters()), other(stayed->parameters());
  moved->to(box.device(0));
  for (int step = 0; step < 3; ++step) {
    train(moved, one);
    train(stayed, other);
  }
  for (const Tensor& tensor : values_in(moved)) EXPECT_EQ(tensor.device(), box.device(0));
  moved->to(torch::kCPU);
  for (const Tensor& tensor : values_in(moved)) EXPECT_TRUE(tensor.is_cpu());
  expect_equal(moved, stayed);
}

TEST(ModuleTo, TakesOnTheCardWhatTheTensorsTake) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  torch::nn::Linear net(1024, 1024);
  net->to(box.device(0));
  const auto statistics = box.card(0).statistics().allocated_bytes.all;
  EXPECT_EQ(statistics.current, (4 << 20) + 4096);
  EXPECT_EQ(statistics.peak, statistics.current);
  net->to(torch::kCPU);
  EXPECT_EQ(allocated(box.card(0)), 0);
}

TEST(ModuleTo, KeepsTiesGradientsHooksAndRequiresGrad) {
  const sim::Simulation box = computing("2x1GiB");
  torch::nn::Linear net(4, 4);
  net->register_parameter("tied", net->weight);
  net->bias.set_requires_grad(false);
  int calls = 0;
  net->weight.register_hook([&](const Tensor& gradient) { return ++calls, gradient; });
  net->forward(torch::ones({3, 4})).sum().backward();
  const Tensor gradient = net->weight.grad(), before = gradient.clone();
  for (const torch::Device device : {box.device(0), box.device(1), torch::Device("cpu")}) {
    net->to(device);
    EXPECT_TRUE(net->named_parameters()["tied"].is_same(net->weight));
    EXPECT_TRUE(net->weight.grad().is_same(gradient));
    EXPECT_EQ(gradient.device(), device);
    EXPECT_FALSE(net->bias.requires_grad());
  }
  net->to(box.device(1));
  net->forward(torch::ones({3, 4}, box.device(1))).sum().backward();
  EXPECT_TRUE(gradient.cpu().equal(2 * before));
  EXPECT_EQ(calls, 2);
}

TEST(ModuleTo, ReachesRecurrentLayersAndTheirTypes) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::LSTM net(torch::nn::LSTMOptions(4, 3).num_layers(2));
  net->to(box.device(0), torch::kDouble);
  for (const Tensor& weight : net->all_weights()) {
    EXPECT_EQ(weight.device(), box.device(0));
    EXPECT_EQ(weight.scalar_type(), torch::kDouble);
  }
  const auto x = torch::ones({5, 2, 4}, torch::dtype(torch::kDouble).device(box.device(0)));
  EXPECT_EQ(std::get<0>(net->forward(x)).device(), box.device(0));
}

TEST(ModuleTo, LeavesATensorWholeThatFindsTheCardFull) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential net = net_of_8(), same = net_of_8();
  copy_values(net, same);
  train(net, *std::make_unique<torch::optim::SGD>(net->parameters(), 0.0));
  copy_values(net, same);
  for (std::uint64_t request = 1; request <= 6; ++request) {
    const sim::InjectionScope full(box.card(0), sim::once(request));
    EXPECT_THROW(net->to(box.device(0)), c10::OutOfMemoryError);
    expect_equal(net, same);
    for (const Tensor& tensor : net->parameters())
      EXPECT_EQ(tensor.grad().device(), tensor.device());
    net->to(torch::kCPU);
  }
}

TEST(ModuleTo, LeavesRefusalsThatHoldForAllDevicesToLibTorch) {
  const sim::Simulation box = computing("1x1GiB");
  const Tensor weight = torch::ones({2}).requires_grad_(true);
  EXPECT_THROW(weight.set_data(torch::ones({2}, torch::dtype(torch::kLong).device("sim"))),
               c10::Error);
  EXPECT_TRUE(weight.is_cpu());
  EXPECT_EQ((weight + 1).sum().item<float>(), 4);
}

TEST(LoadWithADevice, PutsTheValuesThereWhereverTheModuleLay) {
  const sim::Simulation box = computing("1x1GiB");
  torch::nn::Sequential saved = net_of_8();
  saved->to(box.device(0));
  std::stringstream file;
  torch::save(saved, file);
  torch::nn::Sequential loaded = net_of_8();
  torch::load(loaded, file, box.device(0));
  for (const Tensor& tensor : values_in(loaded)) EXPECT_EQ(tensor.device(), box.device(0));
  expect_equal(loaded, saved);
}

TEST(ScriptModuleTo, MovesItsParameters) {
  const sim::Simulation box = computing("1x1GiB");
  torch::jit::Module module("net");
  module.register_parameter("weight", torch::ones({2, 2}), false);
  module.define("def forward(self, x):\n    return x @ self.weight\n");
  module.to(box.device(0));
  const Tensor y = module.forward({torch::ones({1, 2}, box.device(0))}).toTensor();
  EXPECT_EQ(y.cpu().sum().item<float>(), 4);
}

TEST(SetData, SharesTheMemoryThatItIsGiven) {
  const sim::Simulation box = computing("1x1GiB");
  const Tensor weight = torch::zeros({2}), data = torch::ones({2}, box.device(0));
  weight.set_data(data);
  data.add_(1);
  EXPECT_EQ(weight.cpu().sum().item<float>(), 4);
}

}  // namespace
}  // namespace headroom::libtorch
