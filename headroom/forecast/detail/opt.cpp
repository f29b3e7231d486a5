// OPT: models/families/opt.cpp.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class Opt {
 public:
  Opt(Network& net, const model::OptShape& shape) : net_(net), shape_(shape) {}

  Value layer(Value states, const DecoderInputs& with) {
    Value residual = states;
    if (shape_.norm_first) states = norm(states);
    states = attention(states, with);
    states = net_.dropout(states, shape_.hidden_dropout);
    states = plus(net_.tape, residual, states);
    if (!shape_.norm_first) states = norm(states);
    residual = states;
    if (shape_.norm_first) states = norm(states);
    states =
        net_.linear(states, shape_.width, shape_.inner, "fc1", {.with_bias = shape_.with_bias});
    states = activation(net_.tape, shape_.function, states);
    states =
        net_.linear(states, shape_.inner, shape_.width, "fc2", {.with_bias = shape_.with_bias});
    states = net_.dropout(states, shape_.hidden_dropout);
    states = plus(net_.tape, residual, states);
    if (!shape_.norm_first) states = norm(states);
    return states;
  }

  Value norm(const Value& x) { return net_.layer_norm(x, shape_.width, shape_.affine); }

 private:
  Value attention(const Value& x, const DecoderInputs& with) {
    Value q = projected(x, "self_attn.q_proj");
    q = net_.heads_of(times_number(net_.tape, q));
    Value k = net_.heads_of(projected(x, "self_attn.k_proj"));
    Value v = net_.heads_of(projected(x, "self_attn.v_proj"));
    net_.keep(k, v);
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.width / shape_.heads};
    of.dropout = shape_.attention_dropout;
    Value weights;
    const Value out = net_.attend(q, k, v, with.mask, of, &weights);
    return projected(out, "self_attn.out_proj");
  }

  Value projected(const Value& x, std::string_view path) {
    return net_.linear(x, shape_.width, shape_.width, path, {.with_bias = shape_.with_bias});
  }

  Network& net_;
  const model::OptShape shape_;
};

Value decoded(Network& net, const model::OptShape& shape, Parameter& words, Parameter& places) {
  const bool projects = shape.token_width != shape.width;
  Value embedded = net.embedding(words, net.situation.tokens());
  const auto with = std::make_shared<DecoderInputs>();
  with->mask = net.additive_causal_mask(embedded.type, net.situation.eager, true);
  const Value placed = net.embedding(places, net.situation.tokens());
  if (projects)
    embedded =
        net.linear(embedded, shape.token_width, shape.width, "project_in", {.with_bias = false});
  const auto decoder = std::make_shared<Opt>(net, shape);
  Value states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); },
      plus(net.tape, embedded, placed));
  net.begin_module("final_layer_norm");
  if (shape.norm_at_end) states = decoder->norm(states);
  if (projects)
    states =
        net.linear(states, shape.width, shape.token_width, "project_out", {.with_bias = false});
  return states;
}

}  // namespace

Value opt(Network& net) {
  const model::OptShape shape(net.config);
  net.begin_module("embed_tokens");
  Parameter& words = net.token_table(shape.vocabulary, shape.token_width);
  net.begin_module("embed_positions");
  Parameter& places = net.weight(shape.positions + shape.kFirstPosition, shape.width);
  return decoder_head(net, decoded(net, shape, words, places), shape.token_width, words, {});
}

}  // namespace headroom::forecast::detail
