#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "headroom/libtorch/on.h"
#include "headroom/sim/rules/rnn.h"
#include "rnn_sizes.h"
#include "sides.h"

namespace headroom::sim {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using torch::Tensor;

struct Net {
  std::string kind = "lstm";
  std::int64_t layers = 1;
  bool bidirectional = false, batch_first = false, biases = true, packed = false, train = true;
  double dropout = 0;
  std::int64_t projected = 0;
  at::ScalarType type = at::kFloat;
};

constexpr std::int64_t kSteps = 5, kBatch = 3, kInput = 6, kHidden = 8;

// Numbers that depend on the place alone.
Tensor numbers(at::IntArrayRef sizes, at::ScalarType type, double phase) {
  const std::int64_t n = c10::multiply_integers(sizes);
  return (torch::arange(n, at::kDouble) * 0.37 + phase).sin().reshape(sizes).to(type) * 0.5;
}

std::vector<Tensor> weights_of(const Net& net) {
  const std::int64_t gates = net.kind == "lstm" ? 4 : net.kind == "gru" ? 3 : 1;
  const std::int64_t directions = net.bidirectional ? 2 : 1;
  const std::int64_t out = net.projected > 0 ? net.projected : kHidden;
  std::vector<Tensor> weights;
  const auto add = [&](at::IntArrayRef sizes) {
    weights.push_back(numbers(sizes, net.type, static_cast<double>(weights.size())));
  };
  for (std::int64_t layer = 0; layer < net.layers; ++layer)
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      add({gates * kHidden, layer == 0 ? kInput : out * directions});
      add({gates * kHidden, out});
      if (net.biases) add({gates * kHidden}), add({gates * kHidden});
      if (net.projected > 0) add({net.projected, kHidden});
    }
  return weights;
}

Tensor input_of(const Net& net) {
  if (net.packed) return numbers({3 + 3 + 2 + 1 + 1, kInput}, net.type, 0.5);
  return numbers(
      net.batch_first ? std::vector{kBatch, kSteps, kInput} : std::vector{kSteps, kBatch, kInput},
      net.type, 0.5);
}

using Outputs = std::vector<Tensor>;

Outputs call(const Net& net, const Tensor& x, const Tensor& h, const Tensor& c,
             const std::vector<Tensor>& w) {
  const Tensor sizes = torch::tensor({3, 3, 2, 1, 1}, at::kLong);
  const auto one = [&](auto whole, auto packed) {
    const auto [y, hy] = net.packed ? packed() : whole();
    return Outputs{y, hy};
  };
  if (net.kind == "lstm") {
    const auto [y, hy, cy] = net.packed
                                 ? at::lstm(x, sizes, {h, c}, w, net.biases, net.layers,
                                            net.dropout, net.train, net.bidirectional)
                                 : at::lstm(x, {h, c}, w, net.biases, net.layers, net.dropout,
                                            net.train, net.bidirectional, net.batch_first);
    return {y, hy, cy};
  }
#define HEADROOM_CALL(name)                                                             \
  one(                                                                                  \
      [&] {                                                                             \
        return at::name(x, h, w, net.biases, net.layers, net.dropout, net.train,        \
                        net.bidirectional, net.batch_first);                            \
      },                                                                                \
      [&] {                                                                             \
        return at::name(x, sizes, h, w, net.biases, net.layers, net.dropout, net.train, \
                        net.bidirectional);                                             \
      })
  if (net.kind == "gru") return HEADROOM_CALL(gru);
  if (net.kind == "tanh") return HEADROOM_CALL(rnn_tanh);
  return HEADROOM_CALL(rnn_relu);
#undef HEADROOM_CALL
}

// Outputs, and the gradients of everything.
Computation recurrent(const Net& net) {
  return [net](torch::Device device) {
    const auto put = [&](const Tensor& x) { return x.to(device).set_requires_grad(net.train); };
    const std::int64_t states = net.layers * (net.bidirectional ? 2 : 1);
    const std::int64_t out = net.projected > 0 ? net.projected : kHidden;
    const Tensor x = put(input_of(net)), h = put(numbers({states, kBatch, out}, net.type, 0.1)),
                 c = put(numbers({states, kBatch, kHidden}, net.type, 0.2));
    std::vector<Tensor> weights;
    for (const Tensor& weight : weights_of(net)) weights.push_back(put(weight));
    Outputs results = call(net, x, h, c, weights);
    if (!net.train) return results;
    Tensor loss = (results[0] * results[0]).sum() + results[1].sum();
    if (results.size() > 2) loss = loss + (results[2] * results[2]).sum();
    loss.backward();
    results.push_back(x.grad()), results.push_back(h.grad());
    if (net.kind == "lstm") results.push_back(c.grad());
    for (const Tensor& weight : weights) results.push_back(weight.grad());
    return results;
  };
}

TEST(Rnn, GivesTheCpusNumbersThroughCudnn) {
  for (const char* kind : {"lstm", "gru", "tanh", "relu"}) {
    SCOPED_TRACE(kind);
    expect_as_on_cpu(recurrent({.kind = kind}));
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 2, .bidirectional = true}));
    expect_as_on_cpu(recurrent({.kind = kind, .batch_first = true, .biases = false}));
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 2, .packed = true}));
    expect_as_on_cpu(recurrent({.kind = kind, .bidirectional = true, .packed = true}));
    expect_as_on_cpu(recurrent({.kind = kind, .type = at::kDouble}));
    expect_as_on_cpu(recurrent({.kind = kind, .train = false}));
  }
}

TEST(Rnn, DropsTheSameElementsBetweenLayersAsTheCpu) {
  for (const char* kind : {"lstm", "gru"}) {
    SCOPED_TRACE(kind);
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 3, .dropout = 0.5}));
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 2, .packed = true, .dropout = 0.5}));
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 2, .batch_first = true, .dropout = 0.5}));
  }
}

TEST(Rnn, ProjectsInAnLstm) {
  expect_as_on_cpu(recurrent({.projected = 5}));
}

TEST(Rnn, FollowsTheCpusRulesToTheBit) {
  const SimulationOptions cpu{.rules = Rules::cpu};
  for (const char* kind : {"lstm", "gru", "tanh", "relu"}) {
    SCOPED_TRACE(kind);
    expect_as_on_cpu(recurrent({.kind = kind, .layers = 2, .bidirectional = true}), cpu);
    expect_as_on_cpu(recurrent({.kind = kind, .batch_first = true}), cpu);
    expect_as_on_cpu(recurrent({.kind = kind, .bidirectional = true, .packed = true}), cpu);
    expect_as_on_cpu(recurrent({.kind = kind, .type = at::kDouble}), cpu);
  }
  expect_as_on_cpu(recurrent({.projected = 5}), cpu);
}

// Weights of 4 x 8 rows for 6 inputs, 8 states and two biases; gates of 5 steps of 3 in float, and
// for each the cell's state.
TEST(Rnn, KeepsAReserveAndOneBufferOfGradients) {
  const rules::RnnShape shape{.input = kInput,
                              .hidden = kHidden,
                              .steps = kSteps,
                              .batch = kBatch,
                              .rows = kSteps * kBatch};
  EXPECT_EQ(rules::weight_elements(shape), 32 * (6 + 8 + 2));
  EXPECT_EQ(rules::reserve_bytes(shape, at::kFloat), 15 * (4 + 1) * 8 * 4 + 256);
  const Side side = run_on_card(recurrent({}), {.cublas_workspaces = false});
  EXPECT_THAT(side.requests, Contains(Pair("alloc", 15 * (4 + 1) * 8 * 4 + 256)));
  EXPECT_THAT(side.requests, Contains(Pair("alloc", 32 * (6 + 8 + 2) * 4)));
}

TEST(Rnn, SizesAreThoseMeasuredOnACard) {
  std::vector<double> errors;
  for (const MeasuredRnn& one : measured_rnns()) {
    if (one.reserve > 0) {
      EXPECT_LE(std::abs(rules::reserve_bytes(one.shape, one.type) - one.reserve), 64);
    }
    errors.push_back(
        std::abs(static_cast<double>(rules::workspace_bytes(one.shape, one.type) - one.workspace) /
                 static_cast<double>(one.workspace)));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.04);
  EXPECT_LT(errors.back(), 0.4);
}

TEST(Rnn, KeepsNoReserveInInference) {
  const Side side = run_on_card(recurrent({.train = false}), {.cublas_workspaces = false});
  EXPECT_THAT(side.requests, ::testing::Not(Contains(Pair("alloc", 15 * (4 + 1) * 8 * 4 + 256))));
}

// An LSTM under the CPU's rules once took a seventh of its memory: oneDNN's workspace, which a
// layer keeps for its backward pass, was left out.
TEST(Rnn, KeepsOneDnnsWorkspaceToTheByte) {
  for (const std::int64_t steps : {1, 5, 64})
    for (const std::int64_t batch : {1, 3, 128})
      for (const std::int64_t input : {1, 6, 100, 256})
        for (const std::int64_t hidden : {1, 16, 100, 256, 300}) {
          const auto zeros = [](at::IntArrayRef sizes) { return torch::zeros(sizes); };
          const auto [y, hy, cy, workspace] = at::mkldnn_rnn_layer(
              zeros({steps, batch, input}), zeros({4 * hidden, input}), zeros({4 * hidden, hidden}),
              zeros({4 * hidden}), zeros({4 * hidden}), zeros({batch, hidden}),
              zeros({batch, hidden}), false, {}, 2, hidden, 1, true, false, false, true);
          const rules::RnnShape shape{
              .input = input, .hidden = hidden, .steps = steps, .batch = batch};
          EXPECT_EQ(rules::layer_workspace_bytes(shape, at::kFloat), workspace.numel())
              << steps << " " << batch << " " << input << " " << hidden;
        }
}

TEST(Rnn, KeepsNoWorkspaceWithoutGradients) {
  const SimulationOptions cpu{.rules = Rules::cpu};
  const rules::RnnShape shape{.input = kInput, .hidden = kHidden, .steps = kSteps, .batch = kBatch};
  const auto workspace = Contains(Pair("alloc", rules::layer_workspace_bytes(shape, at::kFloat)));
  EXPECT_THAT(run_on_card(recurrent({}), cpu).requests, workspace);
  const at::NoGradGuard no_gradients;
  EXPECT_THAT(run_on_card(recurrent({.train = false}), cpu).requests, ::testing::Not(workspace));
}

// ---- Cells ----

Computation cell(const std::string& kind, bool biases) {
  return [kind, biases](torch::Device device) {
    const std::int64_t gates = kind == "lstm" ? 4 : 3;
    const auto put = [&](at::IntArrayRef sizes, double phase) {
      return numbers(sizes, at::kFloat, phase).to(device).set_requires_grad(true);
    };
    const Tensor x = put({kBatch, kInput}, 0), h = put({kBatch, kHidden}, 1),
                 c = put({kBatch, kHidden}, 2), wi = put({gates * kHidden, kInput}, 3),
                 wh = put({gates * kHidden, kHidden}, 4);
    const Tensor bi = biases ? put({gates * kHidden}, 5) : Tensor();
    const Tensor bh = biases ? put({gates * kHidden}, 6) : Tensor();
    Outputs results;
    if (kind == "lstm") {
      const auto [hy, cy] = at::lstm_cell(x, {h, c}, wi, wh, bi, bh);
      (hy * hy + cy).sum().backward();
      results = {hy, cy, c.grad()};
    } else {
      const Tensor hy = at::gru_cell(x, h, wi, wh, bi, bh);
      (hy * hy).sum().backward();
      results = {hy};
    }
    for (const Tensor& leaf : {x, h, wi, wh, bi, bh})
      if (leaf.defined()) results.push_back(leaf.grad());
    return results;
  };
}

TEST(RnnCell, GivesTheCpusNumbers) {
  for (const char* kind : {"lstm", "gru"})
    for (const bool biases : {true, false}) {
      SCOPED_TRACE(kind);
      expect_as_on_cpu(cell(kind, biases));
      expect_as_on_cpu(cell(kind, biases), {.rules = Rules::cpu});
    }
}

TEST(Rnn, RunsAsAModule) {
  expect_as_on_cpu([](torch::Device device) {
    const auto make = [] { return torch::nn::LSTM(torch::nn::LSTMOptions(kInput, kHidden)); };
    torch::manual_seed(3);
    const auto reference = make();
    auto net = libtorch::on(device, make);
    {
      const torch::NoGradGuard no_grad;
      auto target = net->named_parameters();
      for (const auto& item : reference->named_parameters()) target[item.key()].copy_(item.value());
    }
    const auto [out, state] =
        net->forward(numbers({kSteps, kBatch, kInput}, at::kFloat, 0).to(device));
    out.sum().backward();
    return Outputs{out, net->parameters()[0].grad()};
  });
}

}  // namespace
}  // namespace headroom::sim
