#include "headroom/memory/spill.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/idle_tensors.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::memory {
namespace {

using torch::Tensor;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) {
    const auto parts = qkv(norm(x)).chunk(3, -1);
    const Tensor weights = torch::dropout(
        torch::softmax(torch::matmul(parts[0], parts[1].transpose(-1, -2)) / 8, -1), 0.1, true);
    const Tensor y = x + out(torch::matmul(weights, parts[2]));
    return y + torch::dropout(down(torch::gelu(up(y))), 0.1, true);
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

struct StackImpl : torch::nn::Module {
  StackImpl(int depth, std::int64_t width) {
    for (int i = 0; i < depth; ++i)
      blocks.push_back(register_module(std::to_string(i), Block(width)));
  }
  Tensor forward(Tensor x) {
    for (Block& block : blocks) x = block(x);
    return x.pow(2).mean();
  }
  std::vector<Block> blocks;
};
TORCH_MODULE(Stack);

struct Training {
  std::vector<Tensor> weights;
  std::vector<float> losses;
  std::int64_t reserved = 0;
  std::vector<std::int64_t> refused, moved;  // after each step
  SpillUse use;
};

constexpr int kSteps = 5;

struct Shape {
  int depth = 6, steps = kSteps;
};

Training train(const std::string& card, bool spills, const Shape& shape = {},
               const sim::Injector& injector = {}) {
  const sim::Simulation box =
      sim::simulate(card, {.mode = sim::Mode::compute, .check_streams = true});
  torch::manual_seed(1);
  Stack net = libtorch::on(box.device(0), [&] { return Stack(shape.depth, 64); });
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(1e-3));
  std::optional<Spill> spill;
  if (spills) spill.emplace();
  at::Generator generator = box.card(0).generator();
  generator.set_current_seed(3);
  Training run;
  std::optional<sim::InjectionScope> disturbed;
  if (injector) disturbed.emplace(box.card(0), injector);
  for (int step = 0; step < shape.steps; ++step) {
    const Tensor x = torch::randn({16, 64, 64}).to(box.device(0));
    Tensor loss;
    if (spill) {
      const auto saved = spill->scope();
      loss = net(x);
    } else {
      loss = net(x);
    }
    loss.backward();
    adam.step();
    adam.zero_grad();
    if (spill) {
      spill->end_step(libtorch::states_of(adam));
      run.refused.push_back(spill->use().refused);
      run.moved.push_back(spill->use().moved.count);
    }
    run.losses.push_back(loss.item<float>());
  }
  disturbed.reset();
  run.reserved = box.card(0).statistics().reserved_bytes.all.peak;
  for (const Tensor& weight : net->parameters()) run.weights.push_back(weight.detach().cpu());
  if (spill) run.use = spill->use();
  return run;
}

void expect_equal(const Training& run, const Training& other) {
  EXPECT_EQ(run.losses, other.losses);
  ASSERT_EQ(run.weights.size(), other.weights.size());
  for (std::size_t i = 0; i < run.weights.size(); ++i)
    EXPECT_TRUE(torch::equal(run.weights[i], other.weights[i])) << i;
}

std::string card_of(std::int64_t bytes) {
  return "1x" + std::to_string(bytes >> 10) + "KiB";
}

class Spilled : public ::testing::Test {
 protected:
  static const Training& whole() {
    static const Training run = train("1x8GiB", false);
    return run;
  }
};

TEST_F(Spilled, MovesNothingWhileNothingIsRefused) {
  const Training run = train(card_of(whole().reserved), true);
  expect_equal(run, whole());
  EXPECT_EQ(run.use.refused, 0);
  EXPECT_EQ(run.use.moved, Bytes{});
  EXPECT_EQ(run.reserved, whole().reserved);
}

TEST_F(Spilled, EndsEqualToTheBitWithAPartOfTheMemory) {
  for (const int percent : {90, 80, 70, 60, 50}) {
    SCOPED_TRACE(percent);
    const std::string card = card_of(whole().reserved * percent / 100);
    EXPECT_THROW((void)train(card, false), c10::OutOfMemoryError);
    const Training run = train(card, true);
    expect_equal(run, whole());
    EXPECT_GT(run.use.refused, 0);
    EXPECT_EQ(run.use.rescued, run.use.refused);
    EXPECT_EQ(run.refused.back(), run.refused[1]) << "from the third step on nothing is refused";
    const double missing = static_cast<double>(whole().reserved) * (100 - percent) / 100;
    EXPECT_LE(static_cast<double>(run.moved.back() - run.moved[1]) / (kSteps - 2), 1.15 * missing);
  }
}

// Forward, backward and optimizer of two steps; the second has states that may leave.
TEST_F(Spilled, SurvivesASpuriousRefusalOfEachRequest) {
  const Shape small{.depth = 1, .steps = 2};
  const Training expected = train("1x8GiB", false, small);
  for (std::uint64_t request = 1;; ++request) {
    SCOPED_TRACE(request);
    const Training training = train("1x8GiB", true, small, sim::once(request));
    expect_equal(training, expected);
    if (training.use.refused == 0) {  // there are no more requests
      EXPECT_GT(request, 100U);
      break;
    }
    EXPECT_EQ(training.use.rescued, 1);
  }
}

}  // namespace
}  // namespace headroom::memory
