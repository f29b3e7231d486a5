// GPT-NeoX and Pythia: models/families/gpt_neox.cpp.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class GptNeoX {
 public:
  GptNeoX(Network& net, const model::GptNeoXShape& shape) : net_(net), shape_(shape) {}

  Value layer(const Value& states, const DecoderInputs& with) {
    Value weights;
    Value attended = attention(net_.layer_norm(states, shape_.width), with, weights);
    attended = net_.dropout(attended, shape_.hidden_dropout);
    if (!shape_.parallel) attended = plus(net_.tape, attended, states);
    const PlainMlp mlp{shape_.width, shape_.inner, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
                       shape_.function};
    Value wide =
        plain_mlp(net_, net_.layer_norm(shape_.parallel ? states : attended, shape_.width), mlp);
    wide = net_.dropout(wide, shape_.hidden_dropout);
    wide = plus(net_.tape, wide, attended);
    return shape_.parallel ? plus(net_.tape, wide, states) : wide;
  }

 private:
  Value attention(const Value& x, const DecoderInputs& with, Value& weights) {
    const Value all =
        net_.heads_of(net_.linear(x, shape_.width, 3 * shape_.width, "attention.query_key_value",
                                  {.with_bias = shape_.with_bias}));
    const std::int64_t each = all.count / 3;
    const std::vector<Value> parts = split(net_.tape, all, {each, each, each});
    const auto turned = [&](const Value& of) {
      return partly_turned(net_, of, shape_.head_width, shape_.rope.width, with.rotation);
    };
    const Value q = turned(parts[0]);
    Value k = turned(parts[1]), v = parts[2];
    net_.keep(k, v);
    Network::Heads of{.heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.head_width};
    of.dropout = shape_.attention_dropout;
    const Value out = net_.attend(q, k, v, with.mask, of, &weights);
    return net_.linear(out, shape_.width, shape_.width, "attention.dense",
                       {.with_bias = shape_.with_bias});
  }

  Network& net_;
  const model::GptNeoXShape shape_;
};

Value decoded(Network& net, const model::GptNeoXShape& shape, Parameter& words) {
  const Value embedded = net.embedding(words, net.situation.tokens());
  const auto with = std::make_shared<DecoderInputs>();
  with->mask = net.causal_mask({}, embedded.type, net.situation.eager);
  Value states = net.dropout(embedded, shape.hidden_dropout);
  with->rotation = net.rotation(shape.rope.width, embedded.type);
  const auto decoder = std::make_shared<GptNeoX>(net, shape);
  states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); },
      std::move(states));
  net.begin_module("final_layer_norm");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value gpt_neox(Network& net) {
  const model::GptNeoXShape shape(net.config);
  net.begin_module("embed_in");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  net.buffer_bytes += shape.rope.width / 2 * 4;
  return decoder_head(net, decoded(net, shape, words), shape.width, words, {.name = "embed_out"});
}

}  // namespace headroom::forecast::detail
