// The shape of a language model: the numbers that decide its memory, and nothing else.
//
// Parameters are counted exactly as the published models have them (GPT-2 small: 124,439,808).
//
//   const ModelShape* model = find_shape("7B");     // Llama-2-7B's shape, says model->like
//   long long n = parameters(*model);
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::formula {

struct ModelShape {
  std::string name;  // "7B"
  std::string like;  // the published model it is the shape of: "Llama-2-7B"
  long long layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;
  long long positions = 0;       // the longest sequence
  long long position_rows = 0;   // learned position embeddings; 0: rotary, none are learned
  bool gated_ffn = false;        // gate, up and down projections (Llama) instead of two
  bool biases = false;           // on linear layers and norms (GPT-2, OPT)
  bool tied_embeddings = false;  // the output layer is the input embedding
};

[[nodiscard]] long long kv_width(const ModelShape& shape);
[[nodiscard]] long long embedding_parameters(const ModelShape& shape);  // input, output, positions
[[nodiscard]] long long layer_parameters(const ModelShape& shape);      // of one layer
[[nodiscard]] long long parameters(const ModelShape& shape);            // of all

// The usual sizes: 125M, 350M, 774M, 1.3B, 7B, 13B, 70B.
[[nodiscard]] const std::vector<ModelShape>& standard_shapes();
[[nodiscard]] const ModelShape* find_shape(std::string_view name);

}  // namespace headroom::formula
