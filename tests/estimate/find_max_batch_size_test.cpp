#include "headroom/estimate/find_max_batch_size.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/dryrun/dry_run.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::estimate {
namespace {

using namespace literals;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using torch::Tensor;
namespace nn = torch::nn;

constexpr std::int64_t kWidth = 1024, kInside = 320;

// Dropout asks for random numbers, the norm changes buffers as it runs.
struct NetImpl : nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }  // NOLINT(clang-analyzer-optin.cplusplus.VirtualCall): as LibTorch's own
  void reset() override {
    in = register_module("in", nn::Linear(nn::LinearOptions(kWidth, kInside).bias(false)));
    norm = register_module("norm", nn::BatchNorm1d(kInside));
    dropout = register_module("dropout", nn::Dropout(0.5));
    out = register_module("out", nn::Linear(kInside, kWidth));
  }
  Tensor forward(const Tensor& x) { return out(dropout(norm(in(x)))); }

  nn::Linear in{nullptr}, out{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

Tensor rows_of(std::int64_t rows) {
  return torch::ones({rows * 64, kWidth});  // 256 KiB a row
}

// A training under way: two steps done, gradients of a third there.
struct Training {
  explicit Training(c10::Device device)
      : net(libtorch::on(device, [] { return Net(); })),
        adam(net->parameters(), torch::optim::AdamWOptions(1e-2)) {
    torch::manual_seed(3);
    for (int i = 0; i < 3; ++i) {
      adam.zero_grad();
      net->forward(torch::randn({8, kWidth}).to(device)).pow(2).mean().backward();
      if (i < 2) adam.step();
    }
    net->dropout->eval();  // a part of it is not in training mode
  }

  [[nodiscard]] std::vector<Tensor> everything() {
    std::vector<Tensor> all;
    for (const Tensor& parameter : net->parameters()) {
      all.push_back(parameter.detach().cpu().clone());
      all.push_back(parameter.grad().cpu().clone());
    }
    for (const Tensor& buffer : net->buffers()) all.push_back(buffer.cpu().clone());
    for (const Tensor& parameter : net->parameters()) {
      const auto& state = static_cast<const torch::optim::AdamWParamState&>(
          *adam.state().at(parameter.unsafeGetTensorImpl()));
      all.push_back(state.exp_avg().cpu().clone());
      all.push_back(state.exp_avg_sq().cpu().clone());
      all.push_back(torch::tensor(state.step()));
    }
    all.push_back(at::globalContext().defaultGenerator(at::kCPU).get_state().clone());
    all.push_back(
        at::globalContext().defaultGenerator(net->out->weight.device()).get_state().clone());
    for (const auto& module : net->modules())
      all.push_back(torch::tensor(module->is_training() ? 1 : 0));
    return all;
  }

  Net net;
  torch::optim::AdamW adam;
};

void expect_same(const std::vector<Tensor>& before, const std::vector<Tensor>& after) {
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(before[i].equal(after[i])) << "of " << before.size() << ", number " << i;
}

sim::Simulation box_of(std::string_view spec) {
  return sim::simulate(spec, {.mode = sim::Mode::compute});
}

TEST(FindMaxBatchSize, ByDryRunOnADescribedCardLeavesTheModelAlone) {
  Training training{c10::Device(at::kCPU)};
  const auto before = training.everything();
  const MaxBatch found = find_max_batch_size(*training.net, rows_of, dryrun::card_for("512MiB"), 1,
                                             10'000, {.optimizer = &training.adam});
  ASSERT_TRUE(found.size);
  // A row is 256 KiB of input, and as much of output and its gradient.
  EXPECT_THAT(*found.size, testing::AllOf(testing::Gt(300), testing::Lt(1000)));
  EXPECT_EQ(found.recommended, *found.size * 9 / 10);
  EXPECT_THAT(found.dry_probes,
              testing::Contains(testing::AllOf(Field(&Probe::size, *found.size + 1),
                                               Field(&Probe::fits, false))));
  EXPECT_LE(found.dry_probes.size(), std::size_t{kMostProbes});
  EXPECT_TRUE(found.real_probes.empty());
  expect_same(before, training.everything());
}

TEST(FindMaxBatchSize, CountsTheStateOfTheOptimizerThatItIsGiven) {
  nn::Linear net(nn::LinearOptions(8192, 8192).bias(false));                              // 256 MiB
  const auto rows = [](std::int64_t count) { return torch::ones({count * 256, 8192}); };  // 8 MiB
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const gpu::SimulatedCard card = dryrun::card_for("2GiB");
  const auto with_sgd = find_max_batch_size(*net, rows, card, 1, 999, {.optimizer = &sgd}).size;
  const auto with_adamw = find_max_batch_size(*net, rows, card, 1, 999).size;
  // Weight and gradient take 512 MiB, AdamW's two states as much again, and its step has
  // temporaries; a row takes 8 for the input and 8 for the output, or its gradient; the loss is in
  // a segment of 2.
  EXPECT_EQ(with_sgd, (2048 - 512 - 2) / 16);
  EXPECT_LE(with_adamw, (2048 - 1024) / 16);
}

TEST(FindMaxBatchSize, ReallyTrainsTheBatchThatTheDryRunFound) {
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const MaxBatch found = find_max_batch_size(*training.net, rows_of, box.device(0), 1, 500,
                                             {.really = true, .optimizer = &training.adam});
  ASSERT_TRUE(found.size);
  EXPECT_FALSE(found.capped);
  // The first really tried is the dry run's answer, and the next one shows that it is the last.
  ASSERT_EQ(found.real_probes.size(), 2U);
  EXPECT_EQ(found.real_probes[0].size, *found.size);
  EXPECT_TRUE(found.real_probes[0].fits);
  EXPECT_EQ(found.real_probes[1].size, *found.size + 1);
  EXPECT_FALSE(found.real_probes[1].fits);
}

TEST(FindMaxBatchSize, RestoresModelAndOptimizerBitForBit) {
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const auto before = training.everything();
  const Tensor gradient = training.net->out->weight.grad();
  const Bytes allocated = memory::get_gpu_memory_stats(box.device(0)).allocated;
  const MaxBatch found = find_max_batch_size(*training.net, rows_of, box.device(0), 1, 500,
                                             {.really = true, .optimizer = &training.adam});
  EXPECT_TRUE(found.size);
  expect_same(before, training.everything());
  EXPECT_TRUE(training.net->out->weight.grad().is_same(gradient));
  EXPECT_EQ(memory::get_gpu_memory_stats(box.device(0)).allocated, allocated);
  training.adam.step();  // and goes on
}

TEST(FindMaxBatchSize, RestoresAfterAnOutOfMemoryInTheMiddleOfTheOptimizersStep) {
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const auto before = training.everything();
  const Tensor weight_before = training.net->in->weight.detach().cpu().clone();
  // AdamW takes one parameter after the other and makes its state then. Refused is the first large
  // request after small ones, once the last gradient is there: `out` comes after the norm's two.
  enum class Wait { off, for_small, for_large } wait = Wait::off;
  box.card(0).inject([&](const sim::Request& request) {
    if (wait == Wait::for_small && request.bytes < 1_MiB) wait = Wait::for_large;
    const bool refuse = wait == Wait::for_large && request.bytes >= 1_MiB;
    if (refuse) wait = Wait::off;
    return sim::Disturbance{refuse};
  });
  bool is_first = true, weight_had_changed = false;
  const auto loss = [&](NetImpl& net, const Tensor& batch) {
    if (box.card(0).mode() == sim::Mode::compute) {
      weight_had_changed |= !net.in->weight.detach().cpu().equal(weight_before);
      if (std::exchange(is_first, false))
        net.in->weight.register_hook([&](const Tensor& gradient) {
          if (!weight_had_changed) wait = Wait::for_small;
          return gradient;
        });
    }
    return net.forward(batch).pow(2).mean();
  };
  const MaxBatch found = find_max_batch_size(*training.net, rows_of, box.device(0), 1, 4,
                                             {.really = true, .optimizer = &training.adam}, loss);
  box.card(0).inject({});
  EXPECT_EQ(found.size, 3);
  EXPECT_EQ(found.real_probes.front().size, 4);
  EXPECT_FALSE(found.real_probes.front().fits);
  EXPECT_TRUE(weight_had_changed) << "so it was not in the optimizer's step";
  expect_same(before, training.everything());
}

TEST(FindMaxBatchSize, RestoresAfterAnExceptionOfTheLoss) {
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const auto before = training.everything();
  int calls = 0;
  const auto loss = [&](NetImpl& net, const Tensor& batch) {
    if (++calls == 6) throw InputError("a bad row");
    return net.forward(batch).mean();
  };
  EXPECT_THROW(
      static_cast<void>(find_max_batch_size(*training.net, rows_of, box.device(0), 1, 500,
                                            {.really = true, .optimizer = &training.adam}, loss)),
      InputError);
  expect_same(before, training.everything());
}

// The gradients had left the device by then, and stayed away.
TEST(FindMaxBatchSize, MovesNothingIfTheOptimizersStateCannotMove) {
  struct Unknown : torch::optim::OptimizerParamState {};
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const auto before = training.everything();
  training.adam.state()[&training] = std::make_unique<Unknown>();
  EXPECT_THROW(static_cast<void>(find_max_batch_size(*training.net, rows_of, box.device(0), 1, 500,
                                                     {.optimizer = &training.adam})),
               UsageError);
  EXPECT_EQ(training.net->out->weight.grad().device(), box.device(0));
  expect_same(before, training.everything());
}

TEST(FindMaxBatchSize, LeavesTheBytesOfAMarginFree) {
  const sim::Simulation box = box_of("1x64MiB");
  Training training(box.device(0));
  const MaxBatch found = find_max_batch_size(
      *training.net, rows_of, box.device(0), 1, 500,
      {.margin = {.bytes = 20_MiB}, .really = true, .optimizer = &training.adam});
  ASSERT_TRUE(found.recommended);
  EXPECT_LT(*found.recommended, *found.size);
  EXPECT_THAT(found.real_probes,
              testing::Contains(testing::AllOf(Field(&Probe::size, *found.recommended),
                                               Field(&Probe::peak_reserved, testing::Le(44_MiB)))));
}

TEST(FindMaxBatchSize, TakesBatchesOfSeveralTensorsAndAUsersLoss) {
  struct Pair : nn::Cloneable<Pair> {
    Pair() { Pair::reset(); }
    void reset() override { layer = register_module("layer", nn::Linear(4096, 10)); }
    Tensor forward(const Tensor& x) { return layer(x); }
    nn::Linear layer{nullptr};
  };
  Pair net;
  const auto batch_of = [](std::int64_t rows) {
    return std::tuple(torch::ones({rows * 256, 4096}), torch::zeros({rows * 256}, torch::kLong));
  };
  const auto loss = [](Pair& model, const std::tuple<Tensor, Tensor>& batch) {
    return torch::cross_entropy_loss(model.forward(std::get<0>(batch)), std::get<1>(batch));
  };
  const MaxBatch found =
      find_max_batch_size(net, batch_of, dryrun::card_for("1GiB"), 1, 100, {}, loss);
  EXPECT_TRUE(found.capped);
  EXPECT_EQ(found.recommended, 100) << "nothing is near full";
  EXPECT_EQ(find_max_batch_size(net, batch_of, dryrun::card_for("1GiB"), 1, 999, {}, loss).capped,
            false);
}

TEST(FindMaxBatchSize, TakesModulesThatCannotBeMadeOnAnotherDevice) {
  nn::TransformerEncoder net(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayerOptions(64, 4), 2));
  const auto batch_of = [](std::int64_t rows) { return torch::ones({32, rows, 64}); };
  const MaxBatch found =
      find_max_batch_size(*net, batch_of, dryrun::card_for("256MiB"), 1, 100'000);
  ASSERT_TRUE(found.size);
  EXPECT_FALSE(found.capped);
}

TEST(FindMaxBatchSize, RefusesImpossibleRequests) {
  nn::Linear net(4, 4);
  const auto rows = [](std::int64_t count) { return torch::ones({count, 4}); };
  const auto on_cpu = [&] {
    static_cast<void>(find_max_batch_size(*net, rows, c10::Device(at::kCPU), 1, 8));
  };
  EXPECT_THROW(on_cpu(), UsageError);
  const auto really_nowhere = [&] {
    static_cast<void>(
        find_max_batch_size(*net, rows, dryrun::card_for("1GiB"), 1, 8, {.really = true}));
  };
  EXPECT_THAT(really_nowhere,
              testing::ThrowsMessage<UsageError>(HasSubstr("which is only described")));
  const sim::Simulation box = box_of("1x1GiB");
  const auto elsewhere = [&] {
    static_cast<void>(find_max_batch_size(*net, rows, box.device(0), 1, 8));
  };
  EXPECT_THAT(elsewhere, testing::ThrowsMessage<UsageError>(HasSubstr("move(model, device)")));
}

}  // namespace
}  // namespace headroom::estimate
