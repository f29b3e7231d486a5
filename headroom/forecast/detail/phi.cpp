// Phi-1 to Phi-2: models/families/phi.cpp.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

// Attention and MLP run side by side on the same normalised states.
class Phi {
 public:
  Phi(Network& net, const model::PhiShape& shape) : net_(net), shape_(shape) {}

  Value layer(const Value& residual, const DecoderInputs& with) {
    const Value states = net_.layer_norm(residual, shape_.width);
    Value attended = attention(states, with);
    attended = net_.dropout(attended, shape_.residual_dropout);
    Value wide = plain_mlp(net_, states,
                           {shape_.width, shape_.inner, "mlp.fc1", "mlp.fc2", shape_.function});
    wide = net_.dropout(wide, shape_.residual_dropout);
    const Value sum = plus(net_.tape, attended, wide);
    return plus(net_.tape, sum, residual);
  }

 private:
  Value attention(const Value& x, const DecoderInputs& with) {
    Value q = projected(x, shape_.heads, "self_attn.q_proj"),
          k = projected(x, shape_.key_heads, "self_attn.k_proj"),
          v = projected(x, shape_.key_heads, "self_attn.v_proj");
    if (shape_.normalised_heads) {
      q = net_.layer_norm(q, shape_.head_width);
      k = net_.layer_norm(k, shape_.head_width);
    }
    turn(q, k, with.rotation);
    net_.keep(k, v);
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.key_heads, .width = shape_.head_width};
    of.groups = shape_.heads / shape_.key_heads;
    of.dropout = shape_.attention_dropout;
    Value weights;
    const Value out = net_.attend(q, k, v, with.mask, of, &weights);
    return net_.linear(out, shape_.width, shape_.width, "self_attn.dense");
  }

  Value projected(const Value& x, std::int64_t heads, std::string_view path) {
    return net_.heads_of(net_.linear(x, shape_.width, heads * shape_.head_width, path));
  }

  // All four parts exist before the first two are joined again.
  void turn(Value& q, Value& k, const Network::Rotation& by) {
    Tape& tape = net_.tape;
    const auto part = [&](const Value& of) {
      return of.count / shape_.head_width * shape_.rope.width;
    };
    const Value rest_q = slice(tape, q, q.count - part(q)),
                rest_k = slice(tape, k, k.count - part(k));
    const Value turned_q = net_.turned(slice(tape, q, part(q)), by);
    const Value turned_k = net_.turned(slice(tape, k, part(k)), by);
    q = cat(tape, turned_q, rest_q);
    k = cat(tape, turned_k, rest_k);
  }

  Network& net_;
  const model::PhiShape shape_;
};

Value decoded(Network& net, const model::PhiShape& shape, Parameter& words) {
  Value embedded = net.embedding(words, net.situation.tokens());
  const auto with = std::make_shared<DecoderInputs>();
  with->mask = net.causal_mask({}, embedded.type, net.situation.eager);
  embedded = net.dropout(embedded, shape.embedding_dropout);
  with->rotation = net.rotation(shape.rope.width, embedded.type);
  const auto decoder = std::make_shared<Phi>(net, shape);
  Value states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); }, embedded);
  net.begin_module("final_layernorm");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value phi(Network& net) {
  const model::PhiShape shape(net.config);
  net.begin_module("embed_tokens");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  net.buffer_bytes += shape.rope.width / 2 * 4;
  return decoder_head(net, decoded(net, shape, words), shape.width, words, {.with_bias = true});
}

}  // namespace headroom::forecast::detail
