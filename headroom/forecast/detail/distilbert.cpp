// DistilBERT: models/families/distilbert.cpp.
#include <memory>

#include "headroom/forecast/detail/encoder_head.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class Distilbert {
 public:
  Distilbert(Network& net, const model::DistilbertShape& shape) : net_(net), shape_(shape) {}

  Value embedded(Parameter& words, Parameter& places) {
    const Value word = net_.embedding(words, net_.situation.tokens());
    const Value placed = net_.embedding(places, net_.situation.length);
    Value sum = plus(net_.tape, word, expanded(net_.tape, placed, word.count));
    sum = net_.layer_norm(sum, shape_.width);
    return net_.dropout(sum, shape_.dropout);
  }

  Value layer(const Value& x) {
    Value attended = attention(x);
    attended = net_.layer_norm(plus(net_.tape, attended, x), shape_.width);
    Value out = net_.linear(attended, shape_.width, shape_.inner, "ffn.lin1");
    out = activation(net_.tape, shape_.function, out);
    out = net_.linear(out, shape_.inner, shape_.width, "ffn.lin2");
    out = net_.dropout(out, shape_.dropout);
    return net_.layer_norm(plus(net_.tape, out, attended), shape_.width);
  }

 private:
  Value attention(const Value& x) {
    Value q = projected(x, "q_lin");
    const Value k = projected(x, "k_lin"), v = projected(x, "v_lin");
    const Value out = net_.situation.eager ? eager(q, k, v) : fused(q, k, v);
    return net_.linear(out, shape_.width, shape_.width, "out_lin");
  }

  Value projected(const Value& x, std::string_view path) {
    return net_.heads_of(net_.linear(x, shape_.width, shape_.width, path));
  }

  Value fused(const Value& q, const Value& k, const Value& v) {
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.width / shape_.heads};
    of.dropout = shape_.attention_dropout;
    of.causal = false;
    return net_.sdpa(q, k, v, {}, of);
  }

  Value eager(Value& q, const Value& k, const Value& v) {
    Tape& tape = net_.tape;
    q = times_number(tape, q);
    const std::int64_t count = q.count / shape_.width * shape_.heads * net_.situation.length;
    Value scores = net_.matmul(q, k, count, shape_.heads);
    scores = masked(tape, scores);
    if (net_.situation.low) scores = cast(tape, scores, Type::float32);
    Value shares = softmax(tape, scores);
    shares = net_.dropout(shares, shape_.attention_dropout);
    const Value out = net_.matmul(shares, v, q.count, shape_.heads);
    return copied(tape, out);
  }

  Network& net_;
  const model::DistilbertShape shape_;
};

Value encoded(Network& net, const model::DistilbertShape& shape, Parameter& words,
              Parameter& places) {
  const auto encoder = std::make_shared<Distilbert>(net, shape);
  const Value embedded = encoder->embedded(words, places);
  return net.layers(
      shape.layers, [encoder](const Value& x) { return encoder->layer(x); }, embedded,
      "transformer.layer");
}

Value classified(Network& net, const Value& states, std::int64_t width) {
  Value x = slice(net.tape, states, net.situation.rows * width);
  x = net.linear(x, width, width, "pre_classifier", {.is_head = true});
  x = unary(net.tape, x, Keeps::result);
  x = net.dropout(x, net.config.number("seq_classif_dropout"));
  return net.classification_loss(
      net.linear(x, width, net.config.labels(), "classifier", {.is_head = true}));
}

}  // namespace

Value distilbert(Network& net) {
  const model::DistilbertShape shape(net.config);
  net.begin_module("embeddings");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  Parameter& places = net.weight(shape.positions, shape.width);
  if (net.config.flag("sinusoidal_pos_embds")) places.trained = false;
  net.buffer_bytes += shape.positions * size_of(Type::int64);
  const Value states = encoded(net, shape, words, places);
  net.begin_module("head", true);
  if (net.situation.task == model::Task::masked_lm)
    return masked_lm_head(net, states, words, shape.function);
  return classified(net, states, shape.width);
}

}  // namespace headroom::forecast::detail
