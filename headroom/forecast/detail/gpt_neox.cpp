// GPT-NeoX and Pythia: models/families/gpt_neox.cpp.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"

namespace headroom::forecast::detail {
namespace {

struct Shape {
  explicit Shape(const model::ModelConfig& config)
      : width(config.at_least_1("hidden_size")),
        heads(config.at_least_1("num_attention_heads")),
        head_width(width / heads),
        turned(static_cast<std::int64_t>(static_cast<double>(head_width) *
                                         config.number("rotary_pct"))),
        inner(config.at_least_1("intermediate_size")),
        layers(config.at_least_1("num_hidden_layers")),
        hidden_dropout(config.number("hidden_dropout")),
        attention_dropout(config.number("attention_dropout")),
        with_bias(config.flag("attention_bias")),
        parallel(config.flag("use_parallel_residual")) {
    if (width % heads != 0) config.refuse("num_attention_heads", "a divisor of `hidden_size`");
  }

  std::int64_t width, heads, head_width, turned, inner, layers;
  double hidden_dropout, attention_dropout;
  bool with_bias, parallel;
};

class GptNeoX {
 public:
  GptNeoX(Network& net, const Shape& shape) : net_(net), shape_(shape) {}

  Value layer(const Value& states, const DecoderSurroundings& with) {
    Value weights;
    Value attended = attention(net_.layer_norm(states, shape_.width), with, weights);
    attended = net_.dropout(attended, shape_.hidden_dropout);
    if (!shape_.parallel) attended = plus(net_.tape, attended, states);
    const PlainMlp mlp{shape_.width, shape_.inner, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h",
                       "hidden_act"};
    Value wide =
        plain_mlp(net_, net_.layer_norm(shape_.parallel ? states : attended, shape_.width), mlp);
    wide = net_.dropout(wide, shape_.hidden_dropout);
    wide = plus(net_.tape, wide, attended);
    return shape_.parallel ? plus(net_.tape, wide, states) : wide;
  }

 private:
  Value attention(const Value& x, const DecoderSurroundings& with, Value& weights) {
    const Value all =
        net_.heads_of(net_.linear(x, shape_.width, 3 * shape_.width, "attention.query_key_value",
                                  {.with_bias = shape_.with_bias}));
    const std::int64_t each = all.count / 3;
    const std::vector<Value> parts = split(net_.tape, all, {each, each, each});
    const auto turned = [&](const Value& of) {
      return partly_turned(net_, of, shape_.head_width, shape_.turned, with.rotation);
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
  const Shape shape_;
};

Value decoded(Network& net, const Shape& shape, Parameter& words) {
  const Value embedded = net.embedding(words, net.situation.tokens());
  const auto with = std::make_shared<DecoderSurroundings>();
  with->mask = net.causal_mask({}, embedded.type, net.situation.eager);
  Value states = net.dropout(embedded, shape.hidden_dropout);
  with->rotation = net.rotation(shape.turned, embedded.type);
  const auto decoder = std::make_shared<GptNeoX>(net, shape);
  states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); },
      std::move(states));
  net.begin_module("final_layer_norm");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value gpt_neox(Network& net) {
  const Shape shape(net.config);
  net.begin_module("embed_in");
  Parameter& words = net.token_table(net.config.at_least_1("vocab_size"), shape.width);
  net.buffer_bytes += shape.turned / 2 * 4;
  return decoder_head(net, decoded(net, shape, words), shape.width, words, {.name = "embed_out"});
}

}  // namespace headroom::forecast::detail
