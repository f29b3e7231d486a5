// Recurrent networks as LibTorch composes them on the CPU, for cards that follow the CPU's rules.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "headroom/sim/rules/rnn.h"

namespace headroom::sim::detail {

struct RnnCall {
  rules::RnnMode mode = rules::RnnMode::lstm;
  at::Tensor input;
  at::Tensor batch_sizes;  // undefined: not packed
  at::Tensor hx, cx;       // cx: only for an LSTM
  at::TensorList weights;
  bool has_biases = true;
  std::int64_t layers = 1;
  double dropout = 0;
  bool train = false, bidirectional = false, batch_first = false;

  [[nodiscard]] bool packed() const { return batch_sizes.defined(); }
  [[nodiscard]] bool projects() const { return cx.defined() && cx.size(2) != hx.size(2); }
};

// Output, hy and, for an LSTM, cy.
[[nodiscard]] std::tuple<at::Tensor, at::Tensor, at::Tensor> rnn_on_cpu(const RnnCall& call);

// One cell: its state before or after a step, and its weights.
struct CellState {
  at::Tensor h, c;
};
struct CellWeights {
  at::Tensor w_input, w_hidden, b_input, b_hidden, w_projection;
};
// `of_input`: the input's part of the gates. Returns the state after the step.
[[nodiscard]] CellState cell_on_cpu(rules::RnnMode mode, const at::Tensor& of_input,
                                    const CellState& state, const CellWeights& weights);

}  // namespace headroom::sim::detail
