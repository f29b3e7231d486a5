// Single recurrent cells: CUDA's fused kernels, with the CPU's numbers.
// Source: aten/src/ATen/native/cuda/RNN.cu for what is allocated and kept,
// aten/src/ATen/native/RNN.cpp, LSTMCell and GRUCell, for the order in which the CPU computes.
#include "headroom/sim/device/alias.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"
#include "headroom/sim/rules/rnn.h"

namespace headroom::sim::rules {
namespace {

struct Gates {
  Tensor input, hidden;
};

// The two parts of the gates with their biases, as the CPU adds them.
Gates gates(const Tensor& input_gates, const Tensor& hidden_gates, const Optional& input_bias,
            const Optional& hidden_bias) {
  if (const CellCall* call = CellCallScope::current()) {
    detail::Aliases on_cpu(c10::DeviceType::CPU);
    const auto host = [&](const Tensor& x) { return x.defined() ? on_cpu.of(x) : Tensor(); };
    return {at::linear(host(call->input), host(call->w_input), host(call->b_input)),
            at::linear(host(call->hidden), host(call->w_hidden), host(call->b_hidden))};
  }
  const auto with = [](const Tensor& x, const Optional& bias) {
    return is_defined(bias) ? x + *bias : x.clone();
  };
  return {with(input_gates, input_bias), with(hidden_gates, hidden_bias)};
}

// ---- LSTM ----

Three lstm(const Tensor& input_gates, const Tensor&, const Tensor& cx, const Optional&,
           const Optional&) {
  Tensor kept = contiguous(input_gates), hy = like(cx), cy = like(cx);
  return {hy, cy, kept};
}

Three fill_lstm(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                const Optional& input_bias, const Optional& hidden_bias) {
  const Gates parts = gates(input_gates, hidden_gates, input_bias, hidden_bias);
  Tensor all = parts.hidden.add_(parts.input);
  const auto part = all.unsafe_chunk(4, 1);
  const Tensor in = part[0].sigmoid_(), forget = part[1].sigmoid_(), cell = part[2].tanh_(),
               out = part[3].sigmoid_();
  Tensor cy = (forget * cx).add_(in * cell);
  Tensor hy = out * cy.tanh();
  return {hy, cy, all};
}

Three lstm_backward(const Optional& grad_hy, const Optional& grad_cy, const Tensor& cx,
                    const Tensor&, const Tensor& kept, bool has_bias) {
  if (!is_defined(grad_hy) && !is_defined(grad_cy)) return {};
  Tensor grad_gates = contiguous(kept), grad_cx = like(cx);
  Tensor grad_bias = has_bias ? grad_gates.sum(0) : Tensor();
  return {grad_gates, grad_cx, grad_bias};
}

Three fill_lstm_backward(const Optional& grad_hy, const Optional& grad_cy, const Tensor& cx,
                         const Tensor& cy, const Tensor& kept, bool has_bias) {
  const auto part = kept.chunk(4, 1);
  const Tensor &in = part[0], &forget = part[1], &cell = part[2], &out = part[3];
  Tensor dcy, dout;
  const Tensor state = cy.tanh();
  if (is_defined(grad_hy)) {
    dout = *grad_hy * state;
    dcy = at::tanh_backward(*grad_hy * out, state);
    if (is_defined(grad_cy)) dcy = dcy + *grad_cy;
  } else {
    dout = at::zeros_like(out);
    dcy = *grad_cy;
  }
  Tensor all =
      at::cat({at::sigmoid_backward(dcy * cell, in), at::sigmoid_backward(dcy * cx, forget),
               at::tanh_backward(dcy * in, cell), at::sigmoid_backward(dout, out)},
              1);
  return {all, dcy * forget, has_bias ? all.sum(0) : Tensor()};
}

// ---- GRU ----

// Keeps the reset, input and new gates, the previous state, and the hidden part of the new gate.
Two gru(const Tensor&, const Tensor&, const Tensor& hx, const Optional&, const Optional&) {
  Tensor kept = contiguous({hx.size(0), hx.size(1) * 5}, hx);
  Tensor hy = contiguous(hx);
  return {hy, kept};
}

Two fill_gru(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
             const Optional& input_bias, const Optional& hidden_bias) {
  const Gates parts = gates(input_gates, hidden_gates, input_bias, hidden_bias);
  const auto of_input = parts.input.unsafe_chunk(3, 1), of_hidden = parts.hidden.unsafe_chunk(3, 1);
  const Tensor reset = of_hidden[0].add_(of_input[0]).sigmoid_();
  const Tensor input = of_hidden[1].add_(of_input[1]).sigmoid_();
  const Tensor hidden_part = of_hidden[2].clone();
  const Tensor fresh = of_input[2].add(of_hidden[2].mul_(reset)).tanh_();
  Tensor hy = (hx - fresh).mul_(input).add_(fresh);
  return {hy, at::cat({reset, input, fresh, hx, hidden_part}, 1)};
}

Five gru_backward(const Tensor& grad_hy, const Tensor& kept, bool has_bias) {
  const std::int64_t width = kept.size(1) / 5;
  Tensor grad_input = contiguous({kept.size(0), width * 3}, kept);
  Tensor grad_hidden = contiguous({kept.size(0), width * 3}, kept);
  Tensor grad_hx = contiguous(grad_hy);
  return {grad_input, grad_hidden, grad_hx, has_bias ? grad_input.sum(0) : Tensor(),
          has_bias ? grad_hidden.sum(0) : Tensor()};
}

Five fill_gru_backward(const Tensor& grad_hy, const Tensor& kept, bool has_bias) {
  const auto part = kept.chunk(5, 1);
  const Tensor &reset = part[0], &input = part[1], &fresh = part[2], &hx = part[3],
               &hidden_part = part[4];
  const Tensor dhx = grad_hy * input;
  const Tensor dinput = at::sigmoid_backward(grad_hy * (hx - fresh), input);
  const Tensor dfresh = at::tanh_backward(grad_hy + dhx.neg(), fresh);
  const Tensor dreset = at::sigmoid_backward(dfresh * hidden_part, reset);
  Tensor of_input = at::cat({dreset, dinput, dfresh}, 1);
  Tensor of_hidden = at::cat({dreset, dinput, dfresh * reset}, 1);
  return {of_input, of_hidden, dhx, has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

}  // namespace

const CellCall*& CellCallScope::current() {
  thread_local const CellCall* call = nullptr;
  return call;
}

void add_rnn_cells(Table& table) {
  table.rule("_thnn_fused_lstm_cell", lstm);
  table.fill("_thnn_fused_lstm_cell", fill_lstm);
  table.rule("_thnn_fused_lstm_cell_backward_impl", lstm_backward);
  table.fill("_thnn_fused_lstm_cell_backward_impl", fill_lstm_backward);
  table.rule("_thnn_fused_gru_cell", gru);
  table.fill("_thnn_fused_gru_cell", fill_gru);
  table.rule("_thnn_fused_gru_cell_backward", gru_backward);
  table.fill("_thnn_fused_gru_cell_backward", fill_gru_backward);
}

}  // namespace headroom::sim::rules
