#include "headroom/nn/checkpoint_modules.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/modules.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using torch::Tensor;
using torch::nn::BatchNormOptions;
using torch::nn::Sequential;

constexpr Recompute kBoth[] = {Recompute::nonreentrant, Recompute::reentrant};

// A user's own block, with a batch norm two levels deep.
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(std::int64_t channels)
      : inner(register_module(
            "inner",
            Sequential(
                torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)),
                torch::nn::BatchNorm2d(BatchNormOptions(channels).momentum(std::nullopt)),
                torch::nn::ReLU(), torch::nn::Dropout(0.3)))) {}
  Tensor forward(const Tensor& x) { return x + inner->forward(x); }
  Sequential inner;
};
TORCH_MODULE(Residual);

Sequential image_net() {
  return Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                    torch::nn::Dropout(0.2), Residual(4), Residual(4), torch::nn::Conv2d(4, 4, 3),
                    torch::nn::BatchNorm2d(BatchNormOptions(4).momentum(0.3)));
}
Sequential flat_net() {
  return Sequential(torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                    torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8));
}
Sequential volume_net() {
  return Sequential(torch::nn::Conv3d(3, 4, 2), torch::nn::BatchNorm3d(4), torch::nn::ReLU());
}

std::vector<Tensor> results_of(torch::nn::Module& net) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : net.parameters()) all.push_back(parameter.grad().cpu());
  for (const Tensor& buffer : net.buffers()) all.push_back(buffer.cpu());
  return all;
}

// Two steps without an update: gradients, running statistics and the next random number.
std::vector<Tensor> trained(Sequential net, std::vector<std::int64_t> sizes, torch::Device device,
                            Recompute how, std::size_t segments) {
  libtorch::move(*net, device);
  Tensor x = torch::randn(sizes).to(device).requires_grad_();
  at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(7);
  for (int step = 0; step < 2; ++step)
    checkpointed_sequential(how, *net, x, segments).pow(2).sum().backward();
  std::vector<Tensor> all = results_of(*net);
  all.push_back(x.grad().cpu());
  all.push_back(torch::rand({1}, device).cpu());
  return all;
}

void expect_equal(const std::vector<Tensor>& one, const std::vector<Tensor>& other,
                  const std::string& where) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(one[i].equal(other[i])) << where << ", number " << i;
}

TEST(CheckpointedSequential, GivesGradientsAndRunningStatisticsToTheBit) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  struct Kind {
    Sequential (*make)();
    std::vector<std::int64_t> sizes;
    std::size_t most;
  };
  for (const Kind& kind : {Kind{image_net, {2, 3, 8, 8}, 8}, Kind{flat_net, {4, 3}, 5},
                           Kind{volume_net, {2, 3, 4, 4, 4}, 3}})
    for (const torch::Device device : {torch::Device(torch::kCPU), box.device(0)}) {
      const auto result = [&](Recompute how, std::size_t segments) {
        torch::manual_seed(1);
        return trained(kind.make(), kind.sizes, device, how, segments);
      };
      const std::vector<Tensor> plain = result(Recompute::none, 1);
      for (const Recompute how : kBoth)
        for (std::size_t segments = 1; segments <= kind.most; ++segments)
          expect_equal(result(how, segments), plain,
                       device.str() + ", segments " + std::to_string(segments));
    }
}

struct CountedImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    ++runs;
    return x.sin();
  }
  int runs = 0;
};
TORCH_MODULE(Counted);

// len // segments modules each, the rest in the last, as checkpoint_sequential has it.
TEST(CheckpointedSequential, RunsTheLastSegmentOnce) {
  Sequential net;
  std::vector<Counted> modules;
  for (int i = 0; i < 8; ++i) net->push_back(modules.emplace_back());
  Tensor x = torch::ones({3}).requires_grad_();
  checkpointed_sequential(Recompute::reentrant, *net, x, 3).sum().backward();
  std::vector<int> runs;
  for (const Counted& module : modules) runs.push_back(module->runs);
  EXPECT_THAT(runs, ::testing::ElementsAre(2, 2, 2, 2, 1, 1, 1, 1));
}

TEST(CheckpointedSequential, KeepsTheInputsOfSegments) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Sigmoid());
  const auto kept = [&](Recompute how, std::size_t segments) {
    Tensor x = torch::empty({1 << 18}, box.device(0)).requires_grad_();  // 1 MiB
    const auto now = [&] { return memory::get_gpu_memory_stats(box.device(0)).allocated.count; };
    const std::int64_t before = now();
    const Tensor y = checkpointed_sequential(how, *net, x, segments);
    return (now() - before) >> 20;
  };
  EXPECT_EQ(kept(Recompute::none, 4), 8);
  for (const Recompute how : kBoth)
    EXPECT_EQ(kept(how, 4), 2 + 2) << "two results that segments take, and both of the last one";
}

TEST(CheckpointedSequential, SaysHowManySegmentsThereCanBe) {
  Sequential net = flat_net();
  for (const std::size_t segments : {0U, 6U}) {
    try {
      (void)checkpointed_sequential(Recompute::nonreentrant, *net, torch::ones({2, 3}), segments);
      ADD_FAILURE() << segments << " were taken";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("1 to 5 segments"));
    }
  }
}

TEST(CheckpointedModule, UpdatesRunningStatisticsOnce) {
  const auto result = [](Recompute how) {
    torch::manual_seed(1);
    Residual block(4);
    Tensor x = torch::randn({2, 4, 5, 5}).requires_grad_();
    const auto part = [&](const Tensor& in) { return block->forward(in); };
    for (int step = 0; step < 2; ++step) checkpointed(how, *block, part, x).pow(2).sum().backward();
    return results_of(*block);
  };
  for (const Recompute how : kBoth) expect_equal(result(how), result(Recompute::none), "");
}

// Nothing of the second run may stay in the module, however it ends.
TEST(CheckpointedModule, PutsOptionsAndCountsBack) {
  for (const Recompute how : kBoth)
    for (const bool fails : {false, true}) {
      torch::nn::BatchNorm1d norm(BatchNormOptions(3).momentum(0.4));
      // The same norm under two names.
      Sequential net(norm, norm);
      Tensor x = torch::randn({4, 3}).requires_grad_();
      int runs = 0;
      const auto part = [&](const Tensor& in) {
        const Tensor y = net->forward(in);
        if (++runs == 2 && fails) throw std::runtime_error("the second time");
        return y.exp();
      };
      const Tensor loss = checkpointed(how, *net, part, x).sum();
      if (fails)
        EXPECT_THROW(loss.backward(), std::exception);
      else
        loss.backward();
      EXPECT_EQ(norm->options.momentum(), 0.4);
      ASSERT_TRUE(norm->num_batches_tracked.defined());
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 2);
    }
}

TEST(CheckpointedModule, CountsInstanceNormOnce) {
  const auto statistics = [](Recompute how) {
    torch::manual_seed(1);
    Sequential net(torch::nn::InstanceNorm1d(
                       torch::nn::InstanceNorm1dOptions(4).track_running_stats(true).affine(true)),
                   torch::nn::Dropout(0.5), torch::nn::Conv1d(4, 4, 1));
    const Tensor x = torch::randn({3, 4, 7}).requires_grad_();
    checkpointed_sequential(how, *net, x, 2).pow(2).sum().backward();
    return results_of(*net);
  };
  for (const Recompute how : kBoth)
    expect_equal(statistics(how), statistics(Recompute::none), "instance norm");
}

}  // namespace
}  // namespace headroom::nn
