// cuDNN's recurrent networks.
// Source: aten/src/ATen/native/cudnn/RNN.cpp for the allocations and their order.
#include "headroom/sim/rules/rnn.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "headroom/sim/rules/cpu_function.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// ---- cuDNN: sizes ----

// The arguments that forward and backward share.
struct Call {
  RnnShape shape;
  bool packed = false, batch_first = false, train = false;
  double dropout = 0;
  std::int64_t weights_a_layer = 4;
  std::vector<std::int64_t> batch_sizes;

  Call(const Tensor& input, std::int64_t stride, std::int64_t mode, std::int64_t hidden,
       std::int64_t projected, std::int64_t layers, bool first, double p, bool training,
       bool bidirectional, IntArrayRef sizes)
      : packed(!sizes.empty()),
        batch_first(first && sizes.empty()),
        train(training),
        dropout(p),
        weights_a_layer(stride),
        batch_sizes(sizes.vec()) {
    shape = {.mode = static_cast<RnnMode>(mode),
             .input = input.size(-1),
             .hidden = hidden,
             .projected = projected,
             .layers = layers,
             .directions = bidirectional ? 2 : 1};
    shape.steps =
        packed ? static_cast<std::int64_t>(sizes.size()) : input.size(batch_first ? 1 : 0);
    shape.batch = packed ? sizes[0] : input.size(batch_first ? 0 : 1);
    shape.rows = packed ? input.size(0) : shape.steps * shape.batch;
    shape.packed = packed;
    shape.dropout = dropout > 0;
  }

  [[nodiscard]] bool has_biases() const { return weights_a_layer >= 4; }
  [[nodiscard]] std::vector<std::int64_t> output_sizes() const {
    const std::int64_t width = shape.output() * shape.directions;
    return packed ? std::vector{shape.rows, width} : std::vector{shape.steps, shape.batch, width};
  }
  [[nodiscard]] std::vector<std::int64_t> state_sizes(std::int64_t width) const {
    return {shape.layers * shape.directions, shape.batch, width};
  }
  [[nodiscard]] Tensor by_step(const Tensor& x) const {
    return batch_first ? x.transpose(0, 1) : x;
  }
};

// ---- cuDNN: rules ----

Five forward(const Tensor& input, TensorList, std::int64_t stride, const Optional& weight_buffer,
             const Tensor& hx, const Optional& cx, std::int64_t mode, std::int64_t hidden,
             std::int64_t projected, std::int64_t layers, bool batch_first, double dropout,
             bool train, bool bidirectional, IntArrayRef batch_sizes, const Optional&) {
  const Call call(input, stride, mode, hidden, projected, layers, batch_first, dropout, train,
                  bidirectional, batch_sizes);
  (void)number_a_random_state();
  const Tensor x = call.by_step(input).contiguous();
  Tensor output = contiguous(call.output_sizes(), input);
  Tensor hy = contiguous(call.state_sizes(call.shape.output()), hx);
  Tensor cy =
      contiguous(is_defined(cx) ? call.state_sizes(hidden) : std::vector<std::int64_t>{0}, hx);
  Tensor weights = or_none(weight_buffer);
  if (!weights.defined()) weights = contiguous({weight_elements(call.shape)}, x);
  const ScalarType type = input.scalar_type();
  const Tensor workspace = contiguous({workspace_bytes(call.shape, type)}, input, at::kByte);
  Tensor reserve = contiguous({train ? reserve_bytes(call.shape, type) : 0}, input, at::kByte);
  return {call.by_step(output), hy, cy, reserve, weights};
}

// Views of the weights in cuDNN's buffer: the matrices of all layers, then all biases.
std::vector<Tensor> weight_views(const Tensor& buffer, TensorList weights) {
  std::vector<Tensor> views(weights.size());
  std::int64_t at = 0;
  for (const bool bias : {false, true})
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const bool is_bias = weights[i].dim() == 1;
      if (is_bias != bias) continue;
      views[i] = buffer.narrow(0, at, weights[i].numel()).view(weights[i].sizes());
      at += weights[i].numel();
    }
  return views;
}

std::vector<Tensor> weight_gradients(const Call& call, const Tensor& input, TensorList weights) {
  const Tensor x = call.by_step(input).contiguous();
  const Tensor all = contiguous({weight_elements(call.shape)}, weights[0]);
  {
    const Tensor workspace =
        contiguous({workspace_bytes(call.shape, input.scalar_type())}, input, at::kByte);
  }
  if (call.has_biases()) return weight_views(all, weights);
  std::vector<Tensor> own;  // without biases each weight is copied
  for (const Tensor& weight : weights) own.push_back(contiguous(weight));
  return own;
}

std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> cudnn_rnn_backward(
    const Tensor& input, TensorList weights, std::int64_t stride, const Tensor&, const Tensor& hx,
    const Optional& cx_or_none, const Tensor& output, const Optional& grad_output,
    const Optional& grad_hy, const Optional& grad_cy, std::int64_t mode, std::int64_t hidden,
    std::int64_t projected, std::int64_t layers, bool batch_first, double dropout, bool train,
    bool bidirectional, IntArrayRef batch_sizes, const Optional&, const Tensor&,
    std::array<bool, 4> wanted) {
  const Tensor cx = or_none(cx_or_none);
  if (!is_defined(grad_output) && !is_defined(grad_hy) && !is_defined(grad_cy))
    return {Tensor(), Tensor(), Tensor(), std::vector<Tensor>(weights.size())};
  const Call call(input, stride, mode, hidden, projected, layers, batch_first, dropout, train,
                  bidirectional, batch_sizes);
  const auto or_zeros = [&](const Optional& gradient, const Tensor& like) {
    return is_defined(gradient) ? *gradient : contiguous(like);
  };
  const Tensor dy_given = or_zeros(grad_output, output), dhy_given = or_zeros(grad_hy, hx);
  const Tensor dcy_given = cx.defined() ? or_zeros(grad_cy, cx) : Tensor();
  Tensor dx, dhx, dcx;
  {
    const Tensor x = call.by_step(input).contiguous(), dy = call.by_step(dy_given).contiguous();
    dx = contiguous(call.by_step(input).sizes(), input);
    const Tensor dhy = dhy_given.contiguous();
    const Tensor dcy = cx.defined() ? dcy_given.contiguous() : Tensor();
    dhx = contiguous(hx);
    if (cx.defined()) dcx = contiguous(cx);
    const Tensor workspace =
        contiguous({workspace_bytes(call.shape, input.scalar_type())}, input, at::kByte);
  }
  std::vector<Tensor> dw;
  if (wanted[3]) dw = weight_gradients(call, input, weights);
  return {call.by_step(dx), dhx, dcx, dw};
}

// ---- cuDNN: data ----

struct Outputs {
  Tensor output, hy, cy;
};

using Whole = Two(const Tensor&, const Tensor&, TensorList, bool, std::int64_t, double, bool, bool,
                  bool);
using Packed = Two(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, std::int64_t,
                   double, bool, bool);

// Runs layers from `first` on with LibTorch's own function for the CPU.
Outputs layers_on_cpu(const Call& call, const Tensor& x, TensorList weights, const Tensor& hx,
                      const Tensor& cx, std::int64_t first, std::int64_t count) {
  const std::int64_t directions = call.shape.directions;
  const Tensor h = hx.narrow(0, first * directions, count * directions);
  const TensorList own =
      weights.slice(static_cast<std::size_t>(first * directions * call.weights_a_layer),
                    static_cast<std::size_t>(count * directions * call.weights_a_layer));
  const bool biases = call.has_biases(), both = directions == 2;
  const Tensor sizes = call.packed ? at::tensor(call.batch_sizes, at::kLong) : Tensor();
  if (call.shape.mode == RnnMode::lstm) {
    const Tensor c = cx.narrow(0, first * directions, count * directions);
    auto [y, hy, cy] = call.packed
                           ? at::lstm(x, sizes, {h, c}, own, biases, count, 0.0, call.train, both)
                           : at::lstm(x, {h, c}, own, biases, count, 0.0, call.train, both, false);
    return {y, hy, cy};
  }
  const auto run = [&](Whole& whole, Packed& packed) {
    auto [y, hy] = call.packed ? packed(x, sizes, h, own, biases, count, 0.0, call.train, both)
                               : whole(x, h, own, biases, count, 0.0, call.train, both, false);
    return Outputs{y, hy, {}};
  };
  if (call.shape.mode == RnnMode::gru) return run(at::gru, at::gru);
  if (call.shape.mode == RnnMode::tanh) return run(at::rnn_tanh, at::rnn_tanh);
  return run(at::rnn_relu, at::rnn_relu);
}

// All layers, with dropout between them drawn from `generator`.
Outputs on_cpu(const Call& call, const Tensor& input, TensorList weights, const Tensor& hx,
               const Tensor& cx, const at::Generator& generator) {
  Tensor x = call.by_step(input);
  const std::int64_t layers = call.shape.layers;
  if (!call.train || call.dropout == 0 || layers == 1) {
    Outputs all = layers_on_cpu(call, x, weights, hx, cx, 0, layers);
    all.output = call.by_step(all.output);
    return all;
  }
  std::vector<Tensor> hy, cy;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const Outputs one = layers_on_cpu(call, x, weights, hx, cx, layer, 1);
    x = layer + 1 < layers ? dropped_out(one.output, call.dropout, generator) : one.output;
    hy.push_back(one.hy);
    if (one.cy.defined()) cy.push_back(one.cy);
  }
  return {call.by_step(x), at::cat(hy), cy.empty() ? Tensor() : at::cat(cy)};
}

Five fill_forward(const Tensor& input, TensorList weights, std::int64_t stride, const Optional&,
                  const Tensor& hx, const Optional& cx, std::int64_t mode, std::int64_t hidden,
                  std::int64_t projected, std::int64_t layers, bool batch_first, double dropout,
                  bool train, bool bidirectional, IntArrayRef batch_sizes, const Optional&) {
  const Call call(input, stride, mode, hidden, projected, layers, batch_first, dropout, train,
                  bidirectional, batch_sizes);
  const bool draws = train && dropout > 0 && layers > 1;
  const at::Generator generator = draws ? keep_random_state() : at::Generator();
  Outputs made;
  {
    // Runs with autograd, also in evaluation, if gradients will be wanted: at::matmul and oneDNN
    // then take another way.
    const bool learns = at::GradMode::is_enabled();
    const FromTheTop scope(learns);
    std::vector<Tensor> own;
    for (const Tensor& weight : weights) own.push_back(leaf(weight, learns));
    made = on_cpu(call, input, own, hx, or_none(cx), generator);
  }
  for (Tensor* result : {&made.output, &made.hy, &made.cy})
    if (result->defined()) *result = result->detach();
  Tensor reserve;
  if (train) {  // for backward: the number of the random state
    reserve = at::zeros({reserve_bytes(call.shape, input.scalar_type())}, at::kByte);
    const std::int64_t number = last_random_state();
    std::memcpy(reserve.mutable_data_ptr(), &number, sizeof number);
  }
  return {made.output, made.hy, made.cy, reserve, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> fill_backward(
    const Tensor& input, TensorList weights, std::int64_t stride, const Tensor&, const Tensor& hx,
    const Optional& cx_or_none, const Tensor&, const Optional& grad_output, const Optional& grad_hy,
    const Optional& grad_cy, std::int64_t mode, std::int64_t hidden, std::int64_t projected,
    std::int64_t layers, bool batch_first, double dropout, bool train, bool bidirectional,
    IntArrayRef batch_sizes, const Optional&, const Tensor& reserve, std::array<bool, 4> wanted) {
  const Call call(input, stride, mode, hidden, projected, layers, batch_first, dropout, train,
                  bidirectional, batch_sizes);
  at::Generator generator;
  if (dropout > 0 && layers > 1) {
    std::int64_t number = 0;
    std::memcpy(&number, reserve.const_data_ptr(), sizeof number);
    generator = random_state(number);
  }
  const Tensor cx = or_none(cx_or_none);
  const FromTheTop scope(true);
  std::vector<Tensor> inputs{leaf(input), leaf(hx)};
  const Tensor c = leaf(cx);
  if (c.defined()) inputs.push_back(c);
  const std::size_t before = inputs.size();
  for (const Tensor& weight : weights) inputs.push_back(leaf(weight));
  const std::vector<Tensor> own(inputs.begin() + static_cast<std::ptrdiff_t>(before), inputs.end());
  const Outputs made = on_cpu(call, inputs[0], own, inputs[1], c, generator);
  const auto all =
      gradients_of({{made.output, grad_output}, {made.hy, grad_hy}, {made.cy, grad_cy}}, inputs);
  std::vector<Tensor> dw;
  if (wanted[3]) dw.assign(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
  return {all[0], all[1], c.defined() ? all[2] : Tensor(), dw};
}

}  // namespace

std::int64_t weight_elements(const RnnShape& shape) {
  const std::int64_t rows = gates_of(shape.mode) * shape.hidden;
  std::int64_t elements = 0;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::int64_t in = layer == 0 ? shape.input : shape.output() * shape.directions;
    elements +=
        shape.directions * (rows * (in + shape.output() + 2) + shape.projected * shape.hidden);
  }
  return elements;
}

std::int64_t reserve_bytes(const RnnShape& shape, ScalarType type) {
  const std::int64_t kept = shape.mode == RnnMode::lstm ? 5 : shape.mode == RnnMode::gru ? 6 : 1;
  const std::int64_t between = (shape.layers - 1) * shape.output();
  const std::int64_t columns = shape.directions * (shape.layers * kept * shape.hidden + between);
  const std::int64_t masks = shape.dropout ? shape.rows * shape.directions * between / 8 : 0;
  return shape.rows * columns * static_cast<std::int64_t>(c10::elementSize(type)) + masks + 256;
}

namespace {

// How many copies of all outputs of a layer, and of the widest inputs, a workspace holds.
struct Copies {
  double outputs, inputs;
};

Copies copies_in_workspace(const RnnShape& shape, bool is_narrow) {
  const bool lstm = shape.mode == RnnMode::lstm, gru = shape.mode == RnnMode::gru;
  if (shape.packed) return lstm ? Copies{4, 0.5} : Copies{3.5, 0};
  if (is_narrow) return lstm ? Copies{12.5, 3.5} : gru ? Copies{7.5, 3.5} : Copies{12, 3};
  return lstm ? Copies{6, 1} : gru ? Copies{4.5, 2} : Copies{5.5, 5.5};
}

}  // namespace

std::int64_t workspace_bytes(const RnnShape& shape, ScalarType type) {
  constexpr std::int64_t a_layer = 8 << 20, most_bytes_of_narrow = 512;
  const auto element = static_cast<std::int64_t>(c10::elementSize(type));
  const bool is_narrow = shape.hidden * element <= most_bytes_of_narrow;
  const std::int64_t layers = shape.layers * shape.directions;
  const std::int64_t widest =
      shape.layers > 1 ? std::max(shape.input, shape.output() * shape.directions) : shape.input;
  const Copies copies = copies_in_workspace(shape, is_narrow);
  const double columns = copies.outputs * static_cast<double>(shape.hidden * shape.directions) +
                         copies.inputs * static_cast<double>(widest);
  const std::int64_t states = is_narrow ? 6 * layers * shape.batch * shape.hidden : 0;
  const auto rows = static_cast<std::int64_t>(static_cast<double>(shape.rows) * columns);
  return layers * a_layer + (weight_elements(shape) + states + rows) * element;
}

void add_rnn(Table& table) {
  table.rule("_cudnn_rnn", forward);
  table.fill("_cudnn_rnn", fill_forward);
  table.rule("_cudnn_rnn_backward", cudnn_rnn_backward);
  table.fill("_cudnn_rnn_backward", fill_backward);
  table.refuse("_cudnn_rnn_flatten_weight",
               "weights of a simulated card count as flattened already: call at::lstm, at::gru or "
               "torch::nn's modules with them as they are");
  table.refuse("_cudnn_init_dropout_state",
               "random numbers of a simulated card come from its generator; call at::lstm, at::gru "
               "or torch::nn's modules");
  add_rnn_cells(table);
  add_rnn_layer(table);
}

}  // namespace headroom::sim::rules
