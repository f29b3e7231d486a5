#include "headroom/formula/model_shape.h"

#include <algorithm>

#include "headroom/base/text.h"

namespace headroom::formula {
namespace {

// The published configurations. Llama-2's and OPT's are their config.json's, GPT-2's are the sizes
// of Radford et al. 2019, table 2, as Hugging Face publishes them.
ModelShape gpt2(std::string name, std::string like, long long layers, long long hidden,
                long long heads) {
  return {.name = std::move(name),
          .like = std::move(like),
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn = 4 * hidden,
          .vocab = 50257,
          .positions = 1024,
          .position_rows = 1024,
          .gated_ffn = false,
          .biases = true,
          .tied_embeddings = true};
}

ModelShape llama2(std::string name, std::string like, long long layers, long long hidden,
                  long long heads, long long kv_heads, long long ffn) {
  return {.name = std::move(name),
          .like = std::move(like),
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn = ffn,
          .vocab = 32000,
          .positions = 4096,
          .position_rows = 0,
          .gated_ffn = true,
          .biases = false,
          .tied_embeddings = false};
}

ModelShape opt_1_3b() {
  ModelShape shape = gpt2("1.3B", "OPT-1.3B", 24, 2048, 32);
  shape.vocab = 50272;
  shape.positions = 2048;
  shape.position_rows = 2050;  // OPT keeps two rows it never uses
  return shape;
}

}  // namespace

long long kv_width(const ModelShape& shape) {
  return shape.hidden / shape.heads * shape.kv_heads;
}

long long embedding_parameters(const ModelShape& shape) {
  const long long tables = shape.tied_embeddings ? 1 : 2;
  return (tables * shape.vocab + shape.position_rows) * shape.hidden;
}

long long layer_parameters(const ModelShape& shape) {
  const long long d = shape.hidden, kv = kv_width(shape), f = shape.ffn;
  const long long attention = 2 * d * d + 2 * d * kv;  // q and output; k and v
  const long long feed_forward = (shape.gated_ffn ? 3 : 2) * d * f;
  const long long norms = 2 * d;
  const long long biases = shape.biases ? (2 * d + 2 * kv) + (f + d) + 2 * d : 0;
  return attention + feed_forward + norms + biases;
}

long long parameters(const ModelShape& shape) {
  const long long final_norm = shape.hidden * (shape.biases ? 2 : 1);
  return embedding_parameters(shape) + shape.layers * layer_parameters(shape) + final_norm;
}

const std::vector<ModelShape>& standard_shapes() {
  static const std::vector<ModelShape> shapes{
      gpt2("125M", "GPT-2", 12, 768, 12),
      gpt2("350M", "GPT-2 medium", 24, 1024, 16),
      gpt2("774M", "GPT-2 large", 36, 1280, 20),
      opt_1_3b(),
      llama2("7B", "Llama-2-7B", 32, 4096, 32, 32, 11008),
      llama2("13B", "Llama-2-13B", 40, 5120, 40, 40, 13824),
      llama2("70B", "Llama-2-70B", 80, 8192, 64, 8, 28672),
  };
  return shapes;
}

const ModelShape* find_shape(std::string_view name) {
  const auto& shapes = standard_shapes();
  const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const ModelShape& shape) {
    return lower(shape.name) == lower(name) || lower(shape.like) == lower(name);
  });
  return found == shapes.end() ? nullptr : &*found;
}

}  // namespace headroom::formula
