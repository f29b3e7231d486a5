// One decoder for all that transformers has, with the differences between its families as data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/forecast/detail/network.h"

namespace headroom::forecast::detail {

// The modules of a decoder on the hub; LoRA targets are matched against the paths of its layers.
struct DecoderNames {
  std::string_view words = "embed_tokens", places = {}, layers = "layers", norm = "norm",
                   head = "lm_head";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj",
                   out = "self_attn.o_proj";  // `q` of all three, if one projection makes them
  std::string_view up = {}, down = {};        // of a plain feed-forward block
};

enum class QueryKeyValue { separate, split, sliced };  // the last two: one projection makes all
enum class Rotated { whole_head, part, both_parts_first };
enum class NormKind { rms, offset_rms, layer };
enum class FeedForward { plain, gated, joined, experts };

// A family's decoder. Defaults are those of Llama.
struct DecoderKind {
  DecoderNames names = {};
  // Sizes, and options of the configuration.
  std::int64_t width = 0, token_width = 0, heads = 0, key_heads = 0, head_width = 0, inner = 0;
  std::int64_t vocabulary = 0;
  std::int64_t rotated_width = 0;         // the rotated part of a head; 0: positions are learned
  std::int64_t positions = 0, first = 0;  // learned ones, and rows before the first of them
  std::vector<int> layers = {};           // 1: a layer with a window
  std::optional<std::int64_t> window = {};
  std::string function = {};
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  double softcap = 0, logit_cap = 0;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, head_bias = false;
  bool normalised_heads = false, always_full_mask = false, always_windowed_mask = false;
  std::int64_t experts = 0, experts_each = 0;
  bool norm_first = true, final_norm = true, affine = true;
  bool scaled = false, scaled_by_layer = false;  // attention weights that `by_hand` computes
  // The ways in which families differ.
  QueryKeyValue projection = QueryKeyValue::separate;
  Rotated rotated_part = Rotated::whole_head;
  NormKind norm = NormKind::rms;
  FeedForward block = FeedForward::gated;
  bool scaled_embedding = false, scaled_queries = false;
  bool sandwich = false;       // a norm after each block, too
  bool parallel = false;       // attention and feed-forward block run side by side
  bool one_norm = false;       // for both of them
  bool by_hand = false;        // the eager form in steps that differ from Llama's
  bool only_in_float = false;  // attention has only that form, and runs it in float
  bool additive_mask = false;
  bool counts_by_mask = false;  // each row has positions of its own
  bool causal_buffers = false;  // each layer has a mask of all its positions
  // The lifetimes of Python's variables.
  bool holds_inputs = false;        // a block's input, until the block's sum is there
  bool holds_weights = true;        // attention weights, until the layer returns
  bool holds_last_weights = false;  // and in the model, until the next layer has run
  bool holds_joined = false;        // queries, keys and values in one, until attention returns
  bool frees_mlp_input = false;     // as soon as the first product is there
  bool frees_embedding = false;     // as soon as the dropout's result is there
};

// Runs the decoder and its head. Returns the loss, or an empty value for inference.
[[nodiscard]] Value decoder(Network& net, const DecoderKind& kind);

// The parts of decoder() in experts.cpp: a gated feed-forward block, and Mixtral's many of them.
struct GatedNames {
  std::string_view gate, up, down;
};
[[nodiscard]] Value gated(Network& net, const DecoderKind& of, const Value& x,
                          const GatedNames& names);
[[nodiscard]] Value experts(Network& net, const DecoderKind& of, const Value& x);

}  // namespace headroom::forecast::detail
