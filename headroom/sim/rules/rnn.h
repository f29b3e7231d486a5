// The memory that recurrent networks of cuDNN and oneDNN need besides results, and the data of
// single cells.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace headroom::sim::rules {

enum class RnnMode : std::int64_t { relu = 0, tanh = 1, lstm = 2, gru = 3 };  // cuDNN's numbers

[[nodiscard]] inline std::int64_t gates_of(RnnMode mode) {
  return mode == RnnMode::lstm ? 4 : mode == RnnMode::gru ? 3 : 1;
}

struct RnnShape {
  RnnMode mode = RnnMode::lstm;
  std::int64_t input = 0, hidden = 0, projected = 0, layers = 1, directions = 1;
  std::int64_t steps = 0, batch = 0, rows = 0;  // rows: of all steps together
  bool packed = false, dropout = false;         // dropout: between layers

  [[nodiscard]] std::int64_t output() const { return projected > 0 ? projected : hidden; }
};

// Number of elements in cuDNN's weight buffer. It has two biases for each gate, used or not.
[[nodiscard]] std::int64_t weight_elements(const RnnShape& shape);

// cuDNN documents neither size. The reserve of a training pass keeps for each step, layer and
// direction the gates, for an LSTM the cell's state and for a GRU three more of the gates' size,
// the outputs of all layers but the last, and a bit for each of these with dropout. The workspace
// has 8 MiB and the weights for each layer and direction, and multiples of the outputs and the
// inputs that depend on the algorithm.
// Source: 260 cases measured on an H100 with cuDNN 9.19 (tests/sim/rnn_sizes.h has some). The
// reserve is right to 64 bytes, the workspace within 4 % in half of the cases, and at most 38 %
// off.
[[nodiscard]] std::int64_t reserve_bytes(const RnnShape& shape, at::ScalarType type);
[[nodiscard]] std::int64_t workspace_bytes(const RnnShape& shape, at::ScalarType type);

// The bytes that oneDNN keeps of one layer in one direction for its backward pass, from the shape's
// steps, batch, input and hidden. Equal to the byte for the 994 float32 layers that were measured
// with LibTorch 2.11.
// Source: oneDNN 3.10, src/cpu/rnn/rnn_utils.hpp, set_workspace_sizes, and rnn_utils.cpp,
// set_offsets.
[[nodiscard]] std::int64_t layer_workspace_bytes(const RnnShape& shape, at::ScalarType type);

// The arguments of a single cell. CUDA's fused cell gets matrix products; the CPU's adds the biases
// within them. The fill computes the CPU's way, from these arguments.
struct CellCall {
  at::Tensor input, hidden, cell, w_input, w_hidden, b_input, b_hidden;
};

class CellCallScope {
 public:
  explicit CellCallScope(const CellCall& call) : before_(current()) { current() = &call; }
  ~CellCallScope() { current() = before_; }
  CellCallScope(const CellCallScope&) = delete;
  CellCallScope& operator=(const CellCallScope&) = delete;
  [[nodiscard]] static const CellCall*& current();  // null if there is none

 private:
  const CellCall* before_;
};

}  // namespace headroom::sim::rules
