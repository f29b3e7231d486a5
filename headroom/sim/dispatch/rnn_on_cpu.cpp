// Source: aten/src/ATen/native/RNN.cpp (cells, layers, stacks), aten/src/ATen/native/mkldnn/RNN.cpp
// (mkldnn_rnn).
#include "headroom/sim/dispatch/rnn_on_cpu.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using rules::RnnMode;

CellWeights weights_of(const RnnCall& call, std::int64_t index) {
  const std::int64_t count = (call.has_biases ? 4 : 2) + (call.projects() ? 1 : 0);
  const auto own =
      call.weights.slice(static_cast<std::size_t>(index * count), static_cast<std::size_t>(count));
  CellWeights weights{own[0], own[1], {}, {}, {}};
  if (call.has_biases) weights.b_input = own[2], weights.b_hidden = own[3];
  if (call.projects()) weights.w_projection = own.back();
  return weights;
}

CellState narrowed(const CellState& state, std::int64_t from, std::int64_t count) {
  return {state.h.narrow(0, from, count),
          state.c.defined() ? state.c.narrow(0, from, count) : Tensor()};
}

CellState joined(const std::vector<CellState>& states) {
  std::vector<Tensor> h, c;
  for (const CellState& state : states) {
    h.push_back(state.h);
    if (state.c.defined()) c.push_back(state.c);
  }
  return {at::cat(h, 0), c.empty() ? Tensor() : at::cat(c, 0)};
}

struct LayerResult {
  Tensor output;
  CellState state;
  Tensor of_input;  // of all steps; LibTorch frees the second direction's with the joined outputs
};

LayerResult run_steps(const RnnCall& call, const Tensor& x, CellState state,
                      const CellWeights& weights, bool reversed) {
  const Tensor of_input = at::linear(x, weights.w_input, weights.b_input);
  std::vector<Tensor> steps = of_input.unbind(0);
  if (reversed) std::reverse(steps.begin(), steps.end());
  std::vector<Tensor> outputs;
  for (const Tensor& step : steps) {
    state = cell_on_cpu(call.mode, step, state, weights);
    outputs.push_back(state.h);
  }
  if (reversed) std::reverse(outputs.begin(), outputs.end());
  return {at::stack(outputs, 0), state, of_input};
}

LayerResult run_packed(const RnnCall& call, const Tensor& x, CellState state,
                       const CellWeights& weights) {
  const Tensor of_input = at::linear(x, weights.w_input, weights.b_input);
  const auto* sizes = call.batch_sizes.const_data_ptr<std::int64_t>();
  std::vector<Tensor> outputs;
  std::vector<CellState> ended;
  std::int64_t at = 0, last = sizes[0];
  for (std::int64_t i = 0; i < call.batch_sizes.size(0); ++i) {
    const Tensor step = of_input.narrow(0, at, sizes[i]);
    at += sizes[i];
    if (last > sizes[i]) {
      ended.push_back(narrowed(state, sizes[i], last - sizes[i]));
      state = narrowed(state, 0, sizes[i]);
    }
    last = sizes[i];
    state = cell_on_cpu(call.mode, step, state, weights);
    outputs.push_back(state.h);
  }
  ended.push_back(state);
  std::reverse(ended.begin(), ended.end());
  return {at::cat(outputs, 0), joined(ended), {}};
}

LayerResult run_packed_reversed(const RnnCall& call, const Tensor& x, const CellState& first,
                                const CellWeights& weights) {
  const Tensor of_input = at::linear(x, weights.w_input, weights.b_input);
  const auto* sizes = call.batch_sizes.const_data_ptr<std::int64_t>();
  const std::int64_t steps = call.batch_sizes.size(0);
  std::vector<Tensor> outputs;
  std::int64_t at = x.size(0), last = sizes[steps - 1];
  CellState state = narrowed(first, 0, last);
  for (std::int64_t i = steps - 1; i >= 0; --i) {
    if (sizes[i] > last) state = joined({state, narrowed(first, last, sizes[i] - last)});
    at -= sizes[i];
    last = sizes[i];
    state = cell_on_cpu(call.mode, of_input.narrow(0, at, sizes[i]), state, weights);
    outputs.push_back(state.h);
  }
  std::reverse(outputs.begin(), outputs.end());
  return {at::cat(outputs, 0), state, {}};
}

// oneDNN takes float, and bfloat16 where the CPU has units for it.
bool uses_onednn(const RnnCall& call) {
  return call.mode == RnnMode::lstm && !call.packed() && !call.projects() &&
         call.input.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn() &&
         call.input.numel() != 0;
}

LayerResult run_onednn(const RnnCall& call, const Tensor& x, const CellState& state,
                       const CellWeights& weights, bool reversed) {
  const auto bias = [&](const Tensor& given) {
    return given.defined() ? given : at::zeros(weights.w_input.sizes(), weights.w_input.options());
  };
  auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
      x, weights.w_input, weights.w_hidden, bias(weights.b_input), bias(weights.b_hidden), state.h,
      state.c, reversed, {}, static_cast<std::int64_t>(RnnMode::lstm), call.hx.size(2), call.layers,
      call.has_biases, call.bidirectional, call.batch_first, call.train);
  return {output, {hy, cy}, {}};
}

LayerResult run_layer(const RnnCall& call, const Tensor& x, const CellState& state,
                      const CellWeights& weights, bool reversed) {
  if (uses_onednn(call)) return run_onednn(call, x, state, weights, reversed);
  if (!call.packed()) return run_steps(call, x, state, weights, reversed);
  return reversed ? run_packed_reversed(call, x, state, weights)
                  : run_packed(call, x, state, weights);
}

}  // namespace

CellState cell_on_cpu(RnnMode mode, const Tensor& of_input, const CellState& state,
                      const CellWeights& weights) {
  Tensor of_hidden = at::linear(state.h, weights.w_hidden, weights.b_hidden);
  if (mode == RnnMode::relu) return {of_hidden.add_(of_input).relu(), {}};
  if (mode == RnnMode::tanh) return {of_hidden.add_(of_input).tanh(), {}};
  if (mode == RnnMode::gru) {
    const auto in = of_input.unsafe_chunk(3, 1), hidden = of_hidden.unsafe_chunk(3, 1);
    const Tensor reset = hidden[0].add_(in[0]).sigmoid_();
    const Tensor input = hidden[1].add_(in[1]).sigmoid_();
    const Tensor fresh = in[2].add(hidden[2].mul_(reset)).tanh_();
    return {(state.h - fresh).mul_(input).add_(fresh), {}};
  }
  const auto part = of_hidden.add_(of_input).unsafe_chunk(4, 1);
  const Tensor in = part[0].sigmoid_(), forget = part[1].sigmoid_(), cell = part[2].tanh_(),
               out = part[3].sigmoid_();
  const Tensor cy = (forget * state.c).add_(in * cell);
  Tensor hy = out * cy.tanh();
  if (weights.w_projection.defined()) hy = at::matmul(hy, weights.w_projection.t());
  return {hy, cy};
}

std::tuple<Tensor, Tensor, Tensor> rnn_on_cpu(const RnnCall& call) {
  const bool by_batch = call.batch_first && !call.packed();
  Tensor x = by_batch ? call.input.transpose(0, 1) : call.input;
  if (uses_onednn(call)) x = x.contiguous();
  const std::int64_t directions = call.bidirectional ? 2 : 1;
  std::vector<Tensor> hy, cy;
  for (std::int64_t layer = 0; layer < call.layers; ++layer) {
    std::vector<Tensor> outputs;
    Tensor of_input;
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::int64_t index = layer * directions + direction;
      const CellState state{call.hx.select(0, index),
                            call.cx.defined() ? call.cx.select(0, index) : Tensor()};
      of_input = Tensor();
      const LayerResult made = run_layer(call, x, state, weights_of(call, index), direction == 1);
      of_input = directions == 1 ? Tensor() : made.of_input;
      outputs.push_back(made.output);
      hy.push_back(made.state.h);
      if (made.state.c.defined()) cy.push_back(made.state.c);
    }
    x = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (call.dropout != 0 && call.train && layer + 1 < call.layers)
      x = at::dropout(x, call.dropout, true);
  }
  return {by_batch ? x.transpose(0, 1) : x, at::stack(hy, 0),
          cy.empty() ? Tensor() : at::stack(cy, 0)};
}

}  // namespace headroom::sim::detail
