// oneDNN's layer of an LSTM, of which the CPU runs one for each layer and direction.
// Source: aten/src/ATen/native/mkldnn/RNN.cpp for the allocations and their order. oneDNN's
// scratchpad and the weights that it reorders live only within the layer and differ from CPU to
// CPU; they are left out.
#include <algorithm>

#include "headroom/sim/rules/cpu_function.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"
#include "headroom/sim/rules/rnn.h"

namespace headroom::sim::rules {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// Rows begin on a cache line, and their length is not a multiple of 256.
std::int64_t padded(std::int64_t columns, std::int64_t element) {
  const std::int64_t line = 64 / element, rounded = rounded_up(columns, line);
  return rounded % 256 == 0 ? rounded + line : rounded;
}

Tensor bias_of(const Tensor& like, std::int64_t hidden) {
  return contiguous({gates_of(RnnMode::lstm) * hidden}, like);
}

Four layer(const Tensor& input, const Tensor& weight, const Tensor&, const Tensor&, const Tensor&,
           const Tensor& hx, const Tensor& cx, bool, IntArrayRef, std::int64_t, std::int64_t hidden,
           std::int64_t, bool, bool, bool, bool) {
  Tensor output = contiguous({input.size(0), input.size(1), hidden}, input);
  Tensor hy = contiguous(hx), cy = contiguous(cx), workspace;
  const Tensor bias = bias_of(weight, hidden);
  if (at::GradMode::is_enabled()) {
    const RnnShape shape{
        .input = input.size(2), .hidden = hidden, .steps = input.size(0), .batch = input.size(1)};
    workspace = contiguous({layer_workspace_bytes(shape, input.scalar_type())}, input, at::kByte);
  }
  return {output, hy, cy, workspace};
}

using Seven = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Seven layer_backward(const Tensor& input, const Tensor& w1, const Tensor& w2, const Tensor&,
                     const Tensor&, const Tensor& hx, const Tensor& cx, const Tensor& output,
                     const Tensor&, const Tensor&, const Optional& grad_output,
                     const Optional& grad_hy, const Optional& grad_cy, bool, std::int64_t,
                     std::int64_t hidden, std::int64_t, bool, bool, bool, IntArrayRef, bool,
                     const Tensor&) {
  if (!is_defined(grad_output) && !is_defined(grad_hy) && !is_defined(grad_cy)) return {};
  const auto or_zeros = [](const Optional& gradient, const Tensor& like) {
    return is_defined(gradient) ? gradient->contiguous() : contiguous(like);
  };
  const Tensor dy = or_zeros(grad_output, output), dhy = or_zeros(grad_hy, hx),
               dcy = or_zeros(grad_cy, cx), bias = bias_of(w1, hidden);
  const auto in_float = [](const Tensor& like) { return contiguous(like, at::kFloat); };
  return {in_float(input), in_float(w1), in_float(w2), in_float(bias),
          in_float(bias),  in_float(hx), in_float(cx)};
}

Seven fill_layer_backward(const Tensor& input, const Tensor& w1, const Tensor& w2, const Tensor& w3,
                          const Tensor& w4, const Tensor& hx, const Tensor& cx, const Tensor&,
                          const Tensor&, const Tensor&, const Optional& grad_output,
                          const Optional& grad_hy, const Optional& grad_cy, bool reverse,
                          std::int64_t mode, std::int64_t hidden, std::int64_t layers, bool biases,
                          bool train, bool bidirectional, IntArrayRef sizes, bool batch_first,
                          const Tensor&) {
  const FromTheTop scope(true);
  std::vector<Tensor> in{leaf(input), leaf(w1), leaf(w2), leaf(w3), leaf(w4), leaf(hx), leaf(cx)};
  const auto [y, hy, cy, workspace] =
      at::mkldnn_rnn_layer(in[0], in[1], in[2], in[3], in[4], in[5], in[6], reverse, sizes, mode,
                           hidden, layers, biases, bidirectional, batch_first, train);
  const auto all = gradients_of({{y, grad_output}, {hy, grad_hy}, {cy, grad_cy}}, in);
  return {all[0], all[1], all[2], all[3], all[4], all[5], all[6]};
}

}  // namespace

std::int64_t layer_workspace_bytes(const RnnShape& shape, ScalarType type) {
  constexpr std::int64_t page = 4096, in_float = 4;
  const auto element = static_cast<std::int64_t>(c10::elementSize(type));
  const std::int64_t rows = shape.steps * shape.batch, widest = std::max(shape.input, shape.hidden);
  // States of the layer's input and output, before the first step and after each.
  const std::int64_t states = 2 * (shape.steps + 1) * shape.batch;
  const std::int64_t gates = gates_of(RnnMode::lstm) * shape.hidden;
  const std::int64_t parts[] = {rows * padded(gates, element) * element,
                                rows * padded(shape.hidden, element) * element,
                                states * padded(widest, element) * element,
                                states * shape.hidden * element,
                                states * padded(widest, in_float) * in_float,
                                states * padded(widest, in_float) * in_float,
                                states * shape.hidden * in_float};
  std::int64_t bytes = 0;
  for (const std::int64_t part : parts) bytes = rounded_up(bytes, page) + part;
  return rounded_up(bytes, page);
}

void add_rnn_layer(Table& table) {
  table.rule("mkldnn_rnn_layer", layer);
  table.rule("mkldnn_rnn_layer_backward", layer_backward);
  table.fill("mkldnn_rnn_layer_backward", fill_layer_backward);
}

}  // namespace headroom::sim::rules
