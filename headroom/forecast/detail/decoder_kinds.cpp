// The decoders of transformers, by their differences from Llama's.
#include "headroom/forecast/detail/architectures.h"
#include "headroom/forecast/detail/decoder_network.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

// All that the shapes have in common.
template <typename Shape>
DecoderKind kind_like(const Shape& shape) {
  DecoderKind kind;
  kind.width = kind.token_width = shape.width;
  kind.heads = kind.key_heads = shape.heads;
  kind.head_width = shape.width / shape.heads;
  kind.inner = shape.inner;
  kind.vocabulary = shape.vocabulary;
  kind.function = shape.function;
  kind.attention_dropout = shape.attention_dropout;
  kind.layers.resize(static_cast<std::size_t>(shape.layers));
  if constexpr (requires { shape.key_heads; }) kind.key_heads = shape.key_heads;
  if constexpr (requires { shape.head_width; }) kind.head_width = shape.head_width;
  if constexpr (requires { shape.normalised_heads; })
    kind.normalised_heads = shape.normalised_heads;
  if constexpr (requires { shape.positions; }) kind.positions = shape.positions;
  if constexpr (requires { shape.rope; }) kind.rotated_width = shape.rope.width;
  if constexpr (requires { shape.embedding_dropout; })
    kind.embedding_dropout = shape.embedding_dropout;
  if constexpr (requires { shape.residual_dropout; })
    kind.residual_dropout = shape.residual_dropout;
  return kind;
}

// Layer norms, one activation between two linear layers, and biases.
template <typename Shape>
DecoderKind plain_kind(const Shape& shape, const DecoderNames& names) {
  DecoderKind kind = kind_like(shape);
  kind.names = names;
  kind.norm = NormKind::layer;
  kind.block = FeedForward::plain;
  kind.qkv_bias = kind.out_bias = kind.mlp_bias = true;
  return kind;
}

// GPT-2, and GPT-Neo, which was written after it.
template <typename Shape>
DecoderKind gpt_kind(const Shape& shape, DecoderNames names) {
  names.words = "wte", names.places = "wpe", names.layers = "h", names.norm = "ln_f";
  names.up = "mlp.c_fc", names.down = "mlp.c_proj";
  DecoderKind kind = plain_kind(shape, names);
  kind.by_hand = kind.causal_buffers = kind.holds_inputs = true;
  return kind;
}

}  // namespace

Value llama_like(Network& net) {
  const model::LlamaShape shape(net.config);
  const std::string& type = net.config.type();
  DecoderKind kind = kind_like(shape);
  kind.layers.assign(shape.windowed.begin(), shape.windowed.end());
  kind.window = shape.window;
  kind.softcap = shape.softcap;
  kind.logit_cap = shape.logit_cap;
  kind.qkv_bias = shape.qkv_bias;
  kind.out_bias = shape.out_bias;
  kind.mlp_bias = shape.mlp_bias;
  kind.always_full_mask = shape.always_full_mask;
  kind.scaled_embedding = type.starts_with("gemma");
  if (type.starts_with("gemma")) kind.norm = NormKind::offset_rms;
  kind.sandwich = kind.always_windowed_mask = type == "gemma2";
  kind.experts = shape.experts;
  kind.experts_each = shape.experts_each;
  if (shape.experts > 0) kind.block = FeedForward::experts;
  if (type == "phi3") {
    kind.names.q = "self_attn.qkv_proj";
    kind.projection = QueryKeyValue::sliced;
    kind.rotated_part = Rotated::part;
    kind.block = FeedForward::joined;
  }
  return decoder(net, kind);
}

Value gpt2(Network& net) {
  const model::Gpt2Shape shape(net.config);
  DecoderKind kind = gpt_kind(shape, {.q = "attn.c_attn", .out = "attn.c_proj"});
  kind.projection = QueryKeyValue::split;
  kind.causal_buffers = !net.situation.newest;
  kind.scaled = shape.scaled;
  kind.scaled_by_layer = shape.scaled_by_layer;
  return decoder(net, kind);
}

Value gpt_neo(Network& net) {
  DecoderKind kind = gpt_kind(model::GptNeoShape(net.config), {.q = "attention.q_proj",
                                                               .k = "attention.k_proj",
                                                               .v = "attention.v_proj",
                                                               .out = "attention.out_proj"});
  kind.qkv_bias = false;
  kind.only_in_float = kind.additive_mask = kind.holds_last_weights = true;
  return decoder(net, kind);
}

Value gpt_neox(Network& net) {
  const model::GptNeoXShape shape(net.config);
  DecoderKind kind = plain_kind(shape, {.words = "embed_in",
                                        .norm = "final_layer_norm",
                                        .head = "embed_out",
                                        .q = "attention.query_key_value",
                                        .out = "attention.dense",
                                        .up = "mlp.dense_h_to_4h",
                                        .down = "mlp.dense_4h_to_h"});
  kind.embedding_dropout = kind.residual_dropout = shape.hidden_dropout;
  kind.qkv_bias = kind.out_bias = shape.with_bias;
  kind.projection = QueryKeyValue::split;
  kind.rotated_part = Rotated::part;
  kind.parallel = shape.parallel;
  kind.holds_joined = true;
  return decoder(net, kind);
}

Value opt(Network& net) {
  const model::OptShape shape(net.config);
  DecoderKind kind = plain_kind(shape, {.places = "embed_positions",
                                        .norm = "final_layer_norm",
                                        .out = "self_attn.out_proj",
                                        .up = "fc1",
                                        .down = "fc2"});
  kind.token_width = shape.token_width;
  kind.first = shape.kFirstPosition;
  kind.residual_dropout = shape.hidden_dropout;
  kind.qkv_bias = kind.out_bias = kind.mlp_bias = shape.with_bias;
  kind.norm_first = shape.norm_first;
  kind.final_norm = shape.norm_at_end;
  kind.affine = shape.affine;
  kind.additive_mask = kind.scaled_queries = kind.counts_by_mask = kind.frees_mlp_input = true;
  kind.holds_weights = net.situation.newest;
  return decoder(net, kind);
}

Value phi(Network& net) {
  DecoderKind kind = plain_kind(
      model::PhiShape(net.config),
      {.norm = "final_layernorm", .out = "self_attn.dense", .up = "mlp.fc1", .down = "mlp.fc2"});
  kind.head_bias = true;
  kind.rotated_part = Rotated::both_parts_first;
  kind.parallel = kind.one_norm = kind.frees_embedding = true;
  kind.holds_weights = false;
  return decoder(net, kind);
}

}  // namespace headroom::forecast::detail
