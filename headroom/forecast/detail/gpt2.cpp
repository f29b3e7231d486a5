// GPT-2: models/families/gpt2.cpp.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class Gpt2 {
 public:
  Gpt2(Network& net, const model::Gpt2Shape& shape) : net_(net), shape_(shape) {}

  Value layer(Value states, const DecoderInputs& with) {
    Value residual = states, weights;
    states = net_.layer_norm(states, shape_.width);
    const Value attended = attention(states, with, weights);
    states = plus(net_.tape, attended, residual);
    residual = states;
    states = net_.layer_norm(states, shape_.width);
    const PlainMlp mlp{shape_.width, shape_.inner, "mlp.c_fc", "mlp.c_proj", shape_.function};
    const Value wide = net_.dropout(plain_mlp(net_, states, mlp), shape_.residual_dropout);
    return plus(net_.tape, residual, wide);
  }

 private:
  Value attention(const Value& x, const DecoderInputs& with, Value& weights) {
    Value q, k, v;
    {
      const Value all =
          net_.heads_of(net_.linear(x, shape_.width, 3 * shape_.width, "attn.c_attn"));
      const std::int64_t each = all.count / 3;
      const std::vector<Value> parts = split(net_.tape, all, {each, each, each});
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    net_.keep(k, v);
    Value out =
        net_.situation.eager ? eager(q, k, v, with.mask, weights) : fused(q, k, v, with.mask);
    out = net_.linear(out, shape_.width, shape_.width, "attn.c_proj");
    return net_.dropout(out, shape_.residual_dropout);
  }

  Value eager(const Value& q, const Value& k, const Value& v, const Value& mask, Value& weights) {
    const std::int64_t count = q.count / shape_.width * shape_.heads * net_.situation.length;
    weights = causal_shares(net_, net_.matmul(q, k, count, shape_.heads), v.type, mask,
                            {shape_.scaled, shape_.scaled_by_layer, shape_.attention_dropout});
    return copied(net_.tape, net_.matmul(weights, v, q.count, shape_.heads));
  }

  Value fused(const Value& q, const Value& k, const Value& v, const Value& mask) {
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.width / shape_.heads};
    of.dropout = shape_.attention_dropout;
    return net_.sdpa(q, k, v, mask, of);
  }

  Network& net_;
  const model::Gpt2Shape shape_;
};

Value decoded(Network& net, const model::Gpt2Shape& shape, Parameter& words, Parameter& places) {
  const Value embedded = net.embedding(words, net.situation.tokens());
  const Value placed = net.embedding(places, net.situation.length);
  Value states = plus(net.tape, embedded, expanded(net.tape, placed, embedded.count));
  const auto with = std::make_shared<DecoderInputs>();
  with->mask = net.causal_mask({}, embedded.type, net.situation.eager);
  states = net.dropout(states, shape.embedding_dropout);
  const auto decoder = std::make_shared<Gpt2>(net, shape);
  states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); },
      std::move(states), "h");
  net.begin_module("ln_f");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value gpt2(Network& net) {
  const model::Gpt2Shape shape(net.config);
  net.begin_module("wte");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  net.begin_module("wpe");
  Parameter& places = net.weight(shape.positions, shape.width);
  net.buffer_bytes +=
      shape.layers * (shape.positions * shape.positions + size_of(net.situation.type));
  return decoder_head(net, decoded(net, shape, words, places), shape.width, words, {});
}

}  // namespace headroom::forecast::detail
