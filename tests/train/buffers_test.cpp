#include "headroom/train/detail/buffers.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::train::detail {
namespace {

using torch::Tensor;

struct Net : torch::nn::Module {
  torch::nn::BatchNorm1d norm{nullptr};
  Tensor last;
  explicit Net(const torch::nn::BatchNorm1dOptions& options) {
    norm = register_module("norm", torch::nn::BatchNorm1d(options));
    last = register_buffer("last", torch::zeros({4}));
    last.copy_(torch::ones({4}));
  }
  Tensor forward(const Tensor& x) {
    last.copy_(x.detach()[0]);
    return norm(x);
  }
};

Net net(std::optional<double> momentum = 0.1) {
  torch::nn::BatchNorm1dOptions options(4);
  options.momentum(momentum ? c10::optional<double>(*momentum) : c10::nullopt);
  return Net(options);
}

// One step in parts of these sizes.
void step(Net& of, const Tensor& rows, const std::vector<std::int64_t>& sizes) {
  Buffers buffers({&of});
  buffers.begin(sizes.size() > 1);
  const libtorch::CallScope scope(buffers, libtorch::CallScope::Of::writing);
  for (const Tensor& part : rows.split_with_sizes(sizes)) of.forward(part);
  buffers.finish();
}

Tensor some_rows(int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::randn({12, 4}, torch::kDouble) * 3 + 5;
}

void expect_close(const Tensor& ours, const Tensor& right) {
  EXPECT_TRUE(torch::allclose(ours, right, 1e-12, 1e-12)) << ours << right;
}

TEST(Buffers, PoolPartsOfAnySizesAsOneBatch) {
  for (const std::optional<double> momentum :
       {std::optional(0.1), std::optional<double>(), std::optional(1.0)})
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{6, 6}, {5, 4, 3}, {2, 2, 2, 2, 2, 2}, {10, 2}}) {
      Net whole = net(momentum), parts = net(momentum);
      whole.to(torch::kDouble);
      parts.to(torch::kDouble);
      for (int i = 0; i < 3; ++i) {
        static_cast<void>(whole.forward(some_rows(i)));
        step(parts, some_rows(i), sizes);
      }
      expect_close(parts.norm->running_mean, whole.norm->running_mean);
      expect_close(parts.norm->running_var, whole.norm->running_var);
      EXPECT_EQ(parts.norm->num_batches_tracked.item<std::int64_t>(), 3);
    }
}

TEST(Buffers, LeaveAStepInOnePartToPyTorch) {
  Net whole = net(), one = net();
  static_cast<void>(whole.forward(some_rows(0).to(torch::kFloat)));
  step(one, some_rows(0).to(torch::kFloat), {12});
  EXPECT_TRUE(torch::equal(one.norm->running_mean, whole.norm->running_mean));
  EXPECT_TRUE(torch::equal(one.norm->running_var, whole.norm->running_var));
}

TEST(Buffers, KeepOthersAsTheLastPartLeftThem) {
  Net parts = net();
  const Tensor rows = some_rows(0).to(torch::kFloat);
  step(parts, rows, {5, 7});
  EXPECT_TRUE(torch::equal(parts.last, rows[5]));
}

TEST(Buffers, LeaveALayerInEvaluationAlone) {
  Net parts = net();
  parts.norm->running_mean.fill_(2);
  parts.norm->eval();
  step(parts, some_rows(0).to(torch::kFloat), {5, 7});
  EXPECT_TRUE(torch::equal(parts.norm->running_mean, torch::full({4}, 2.F)));
  EXPECT_EQ(parts.norm->num_batches_tracked.item<std::int64_t>(), 0);
}

TEST(Buffers, AreAsBeforeAfterAFailure) {
  Net parts = net();
  const Tensor rows = some_rows(0).to(torch::kFloat);
  step(parts, rows, {6, 6});
  const auto state = [&] {
    std::vector<Tensor> all;
    for (const Tensor& buffer : parts.buffers()) all.push_back(buffer.clone());
    return all;
  };
  const auto before = state();
  Buffers buffers({&parts});
  for (const std::int64_t count : {1, 2}) {
    buffers.begin(count > 1);
    const libtorch::CallScope scope(buffers, libtorch::CallScope::Of::writing);
    static_cast<void>(parts.forward(rows));
    buffers.restore();
    const auto after = state();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(after[i], before[i]));
  }
}

TEST(Buffers, TakeNoMemoryOfTheCardAfterTheyWereMade) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Net of = net();
  of.to(box.device(0));
  const Tensor rows = some_rows(0).to(torch::kFloat).to(box.device(0));
  const auto requests = [&](const auto& work) {
    const std::uint64_t before = box.card(0).requests();
    work();
    return box.card(0).requests() - before;
  };
  const std::uint64_t plain = requests([&] { static_cast<void>(of.forward(rows)); });
  Buffers buffers({&of});
  EXPECT_EQ(requests([&] {
              buffers.begin(true);
              const libtorch::CallScope scope(buffers, libtorch::CallScope::Of::writing);
              static_cast<void>(of.forward(rows));
              buffers.finish();
              buffers.restore();
            }),
            plain);
}

TEST(Buffers, RefuseOneThatCannotBePutBack) {
  Net of = net();
  of.register_buffer("wide", torch::ones({1}).expand({4}));
  try {
    const Buffers buffers({&of});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("wide"));
  }
}

}  // namespace
}  // namespace headroom::train::detail
