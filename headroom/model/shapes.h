// The sizes and options of published models, read from their configurations once: for the models
// themselves and for the forecast of their memory.
//
//   const Gpt2Shape shape(config);   // throws InputError for a config that cannot be built
//   shape.width;                     // 768, the size of a token's hidden state
//
// One word for one size in all of them: `width` of hidden states, `inner` of the feed-forward
// block, `heads` and `head_width` of attention, `positions` of a table of learned positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/model/model_config.h"
#include "headroom/model/rope.h"

namespace headroom::model {

// The activation function that a key names. Throws InputError if transformers has none of that
// name.
[[nodiscard]] std::string activation_name(const ModelConfig& config, std::string_view key);
[[nodiscard]] bool is_activation(std::string_view name);

// The row that gets no gradient (`pad_token_id`) in an embedding of this many rows, or -1. Configs
// may count it from the end. Throws InputError if it is out of range.
[[nodiscard]] std::int64_t padding_row(const ModelConfig& config, std::int64_t rows);

// ---- Decoders ----

// Llama and the decoders built after it: Mistral, Qwen, Gemma, Phi-3, Mixtral.
struct LlamaShape {
  explicit LlamaShape(const ModelConfig& config);

  std::int64_t width, heads, key_heads, head_width, inner, layers, vocabulary, padding;
  double epsilon, attention_dropout, residual_dropout = 0;
  double scaling = 1;    // of attention
  double softcap = 0;    // on attention weights, eager form only; 0: none
  double logit_cap = 0;  // a tanh cap on the head's logits; 0: none
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool normalised_heads = false;               // Qwen3 normalises queries and keys
  std::optional<std::int64_t> window = {};     // how many tokens back a windowed layer sees
  std::vector<bool> windowed;                  // one per layer
  bool always_full_mask = false;               // even if no layer uses it
  std::int64_t experts = 0, experts_each = 0;  // Mixtral's; 0: a plain feed-forward block
  double router_jitter = 0;                    // noise on the router's input while training
  double routing_loss = 0;       // the weight of the loss that spreads tokens over the experts
  bool collects_routes = false;  // returns the routers' logits, and adds that loss
  std::string function;
  Rope rope;
};

struct Gpt2Shape {
  explicit Gpt2Shape(const ModelConfig& config);

  std::int64_t width, heads, inner, layers, positions, vocabulary;
  double epsilon, embedding_dropout, attention_dropout, residual_dropout;
  bool scaled, scaled_by_layer, upcast;
  std::string function;
};

struct GptNeoShape {
  explicit GptNeoShape(const ModelConfig& config);

  std::int64_t width, heads, inner, layers, positions, window, vocabulary;
  std::vector<bool> windowed;  // one per layer
  double epsilon, embedding_dropout, attention_dropout, residual_dropout;
  std::string function;
};

struct GptNeoXShape {
  explicit GptNeoXShape(const ModelConfig& config);

  std::int64_t width, heads, head_width, inner, layers, vocabulary;
  double epsilon, hidden_dropout, attention_dropout;
  bool with_bias, parallel;
  std::string function;
  Rope rope;
};

struct OptShape {
  explicit OptShape(const ModelConfig& config);

  static constexpr std::int64_t kFirstPosition = 2;  // rows before the first position
  std::int64_t width, token_width, heads, inner, layers, positions, vocabulary, padding;
  double hidden_dropout, attention_dropout;
  bool norm_first, norm_at_end, with_bias, affine;
  std::string function;
};

struct PhiShape {
  explicit PhiShape(const ModelConfig& config);

  std::int64_t width, heads, key_heads, head_width, inner, layers, vocabulary, padding;
  double epsilon, embedding_dropout, attention_dropout, residual_dropout;
  bool normalised_heads;
  std::string function;
  Rope rope;
};

// ---- Encoders ----

struct BertShape {
  explicit BertShape(const ModelConfig& config);

  std::int64_t width, heads, inner, layers, vocabulary, positions, segments, padding, chunk;
  double epsilon, dropout, attention_dropout;
  bool decoder, roberta;
  std::string function;
};

struct DistilbertShape {
  explicit DistilbertShape(const ModelConfig& config);

  std::int64_t width, heads, inner, layers, vocabulary, positions, padding, chunk;
  double dropout, attention_dropout;
  std::string function;
};

// An encoder and a decoder.
struct T5Shape {
  explicit T5Shape(const ModelConfig& config);

  std::int64_t width, heads, head_width, inner, encoder_layers, decoder_layers, vocabulary;
  std::int64_t buckets, farthest;  // of relative positions
  std::int64_t start, padding;     // tokens that the decoder's input begins and is filled up with
  double epsilon, dropout;
  bool gated;
  std::string function;
};

// ---- Images ----

struct VitShape {
  explicit VitShape(const ModelConfig& config);
  [[nodiscard]] std::int64_t positions() const { return side / patch * (side / patch) + extra; }

  std::int64_t width, heads, inner, layers, side, patch, channels;
  std::int64_t extra;  // tokens besides the patches: one, and with distillation two
  double epsilon, dropout, attention_dropout;
  bool qkv_bias;
  std::string function;
};

struct ResnetShape {
  explicit ResnetShape(const ModelConfig& config);

  std::int64_t channels, embedding;
  std::vector<std::int64_t> depths, widths;  // one per stage
  bool bottleneck, downsample_in_first_stage, downsample_in_bottleneck;
  std::string function;
};

struct ConvnextShape {
  explicit ConvnextShape(const ModelConfig& config);

  std::int64_t channels, patch;
  std::vector<std::int64_t> depths, widths;  // one per stage
  double epsilon, layer_scale, drop_path;
  std::string function;
};

// The layers that a model of this type runs one after another: in T5 those of encoder and decoder,
// in image models of convolutions the residual blocks of all stages.
[[nodiscard]] std::int64_t layer_count(const ModelConfig& config);

}  // namespace headroom::model
