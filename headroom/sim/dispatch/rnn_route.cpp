#include "headroom/sim/dispatch/registration.h"

#include <ATen/ATen.h>
#include <ATen/ops/gru_cell_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_cell_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>

#include "headroom/sim/device/cards.h"
#include "headroom/sim/dispatch/rnn_on_cpu.h"
#include "headroom/sim/rules/rnn.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using at::TensorList;
using rules::RnnMode;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

bool follows_cpu(const Tensor& x) {
  return card_at(x.device().index()).rules() == Rules::cpu;
}

// The conditions of at::cudnn_is_acceptable and use_cudnn, on a chip with cuDNN 9.
// Source: aten/src/ATen/native/ConvUtils.h and RNN.cpp.
bool cudnn_takes(const Tensor& x) {
  const at::ScalarType type = x.scalar_type();
  return at::globalContext().userEnabledCuDNN() && x.numel() > 0 &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16 || type == at::kDouble);
}

// torch::nn's modules flatten no weights of bfloat16, so that each call copies them into a buffer.
// Autocast's copies are flat in any type.
bool are_flat(const Tensor& weight) {
  const bool is_parameter = weight.is_leaf() && weight.requires_grad();
  return weight.scalar_type() != at::kBFloat16 || !is_parameter;
}

// Flattened weights lie one behind another, and cuDNN works on them in place. An empty buffer
// stands for that, since the card's weights do not share one.
Three by_cudnn(const RnnCall& call) {
  std::optional<Tensor> flattened;
  if (are_flat(call.weights[0]))
    flattened = at::empty({0}, call.weights[0].options().requires_grad(false));
  const std::int64_t hidden = call.cx.defined() ? call.cx.size(2) : call.hx.size(2);
  const std::int64_t count = (call.has_biases ? 4 : 2) + (call.projects() ? 1 : 0);
  std::vector<std::int64_t> sizes;
  if (call.packed()) {
    const auto* data = call.batch_sizes.const_data_ptr<std::int64_t>();
    sizes.assign(data, data + call.batch_sizes.numel());
  }
  auto [output, hy, cy, reserve, buffer] = at::_cudnn_rnn(
      call.input, call.weights, count, flattened, call.hx,
      call.cx.defined() ? std::optional<Tensor>(call.cx) : std::nullopt,
      static_cast<std::int64_t>(call.mode), hidden, call.projects() ? call.hx.size(2) : 0,
      call.layers, call.batch_first, call.dropout, call.train, call.bidirectional, sizes, {});
  return {output, hy, cy};
}

// `composed` gives output, hy and, for an LSTM, cy.
template <typename Composed>
auto run(const RnnCall& call, const Composed& composed) {
  using Results = decltype(composed());
  if (!follows_cpu(call.input) && !cudnn_takes(call.input)) return composed();
  const auto [y, h, c] = follows_cpu(call.input) ? rnn_on_cpu(call) : by_cudnn(call);
  if constexpr (std::is_same_v<Results, Three>)
    return Results(y, h, c);
  else
    return Results(y, h);
}

// ---- LSTM ----

Three lstm(const Tensor& x, TensorList hx, TensorList weights, bool biases, std::int64_t layers,
           double dropout, bool train, bool bidirectional, bool batch_first) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  return run({RnnMode::lstm, x, Tensor(), hx[0], hx[1], weights, biases, layers, dropout, train,
              bidirectional, batch_first},
             [&] {
               return at::native::lstm(x, hx, weights, biases, layers, dropout, train,
                                       bidirectional, batch_first);
             });
}

Three lstm_packed(const Tensor& x, const Tensor& batches, TensorList hx, TensorList weights,
                  bool biases, std::int64_t layers, double dropout, bool train,
                  bool bidirectional) {
  TORCH_CHECK(hx.size() == 2, "lstm expects two hidden states");
  return run({RnnMode::lstm, x, batches, hx[0], hx[1], weights, biases, layers, dropout, train,
              bidirectional, false},
             [&] {
               return at::native::lstm(x, batches, hx, weights, biases, layers, dropout, train,
                                       bidirectional);
             });
}

// ---- The others: one state ----

using Whole = Two (*)(const Tensor&, const Tensor&, TensorList, bool, std::int64_t, double, bool,
                      bool, bool);
using Packed = Two (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, std::int64_t,
                       double, bool, bool);

template <RnnMode mode, Whole composed>
Two whole(const Tensor& x, const Tensor& hx, TensorList weights, bool biases, std::int64_t layers,
          double dropout, bool train, bool bidirectional, bool batch_first) {
  return run(
      {mode, x, {}, hx, {}, weights, biases, layers, dropout, train, bidirectional, batch_first},
      [&] {
        return composed(x, hx, weights, biases, layers, dropout, train, bidirectional, batch_first);
      });
}

template <RnnMode mode, Packed composed>
Two packed(const Tensor& x, const Tensor& batches, const Tensor& hx, TensorList weights,
           bool biases, std::int64_t layers, double dropout, bool train, bool bidirectional) {
  return run(
      {mode, x, batches, hx, {}, weights, biases, layers, dropout, train, bidirectional, false},
      [&] {
        return composed(x, batches, hx, weights, biases, layers, dropout, train, bidirectional);
      });
}

// ---- Single cells ----

using OptionalTensor = std::optional<Tensor>;

Tensor value_of(const OptionalTensor& tensor) {
  return tensor ? *tensor : Tensor();
}

Two lstm_cell(const Tensor& x, TensorList hx, const Tensor& w_input, const Tensor& w_hidden,
              const OptionalTensor& b_input, const OptionalTensor& b_hidden) {
  TORCH_CHECK(hx.size() == 2, "lstm_cell expects two hidden states");
  if (follows_cpu(x)) {
    const CellState made =
        cell_on_cpu(RnnMode::lstm, at::linear(x, w_input, value_of(b_input)), {hx[0], hx[1]},
                    {w_input, w_hidden, value_of(b_input), value_of(b_hidden), {}});
    return {made.h, made.c};
  }
  const rules::CellCall call{
      x, hx[0], hx[1], w_input, w_hidden, value_of(b_input), value_of(b_hidden)};
  const rules::CellCallScope scope(call);
  return at::native::lstm_cell(x, hx, w_input, w_hidden, b_input, b_hidden);
}

Tensor gru_cell(const Tensor& x, const Tensor& hx, const Tensor& w_input, const Tensor& w_hidden,
                const OptionalTensor& b_input, const OptionalTensor& b_hidden) {
  if (follows_cpu(x))
    return cell_on_cpu(RnnMode::gru, at::linear(x, w_input, value_of(b_input)), {hx, {}},
                       {w_input, w_hidden, value_of(b_input), value_of(b_hidden), {}})
        .h;
  const rules::CellCall call{x, hx, {}, w_input, w_hidden, value_of(b_input), value_of(b_hidden)};
  const rules::CellCallScope scope(call);
  return at::native::gru_cell(x, hx, w_input, w_hidden, b_input, b_hidden);
}

void register_for(torch::Library& routes) {
  routes.impl("lstm.input", &lstm);
  routes.impl("lstm.data", &lstm_packed);
  routes.impl("gru.input", &whole<RnnMode::gru, &at::native::gru>);
  routes.impl("gru.data", &packed<RnnMode::gru, &at::native::gru>);
  routes.impl("rnn_tanh.input", &whole<RnnMode::tanh, &at::native::rnn_tanh>);
  routes.impl("rnn_tanh.data", &packed<RnnMode::tanh, &at::native::rnn_tanh>);
  routes.impl("rnn_relu.input", &whole<RnnMode::relu, &at::native::rnn_relu>);
  routes.impl("rnn_relu.data", &packed<RnnMode::relu, &at::native::rnn_relu>);
  routes.impl("lstm_cell", &lstm_cell);
  routes.impl("gru_cell", &gru_cell);
}

}  // namespace

void register_rnn_route(torch::Library& aten) {
  register_for(aten);
  register_for(library(c10::DispatchKey::AutogradPrivateUse1));
}

}  // namespace headroom::sim::detail
