// BERT and RoBERTa: models/families/bert.cpp and bert_encoder.cpp.
#include <memory>

#include "headroom/forecast/detail/encoder_head.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

// The inputs of a layer besides the states, and the last layer's attention weights, held by the
// encoder's loop.
struct BertInputs {
  Value mask, shares = {};
};

class Bert {
 public:
  Bert(Network& net, const model::BertShape& shape) : net_(net), shape_(shape) {}

  // A feed-forward part that runs in chunks of tokens keeps the same in total.
  Value layer(const Value& states, BertInputs& with) {
    Value shares;
    Value attended = attention(states, with, shares);
    attended = added(attended, states, shape_.width, "attention.output.dense");
    Value inner = net_.linear(attended, shape_.width, shape_.inner, "intermediate.dense");
    inner = activation(net_.tape, shape_.function, inner);
    Value out = added(inner, attended, shape_.inner, "output.dense");
    if (net_.tape.phase() == Phase::forward) with.shares = shares;
    return out;
  }

 private:
  Value attention(const Value& states, const BertInputs& with, Value& shares) {
    const auto project = [&](std::string_view path) {
      return net_.heads_of(net_.linear(states, shape_.width, shape_.width, path));
    };
    const Value q = project("self.query");
    Value k = project("self.key"), v = project("self.value");
    if (shape_.decoder) net_.keep(k, v);
    if (net_.situation.eager) return eager(q, k, v, with.mask, shares);
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.heads, .width = shape_.width / shape_.heads};
    of.dropout = shape_.attention_dropout;
    of.causal = shape_.decoder;
    return net_.sdpa(q, k, v, with.mask, of);
  }

  Value eager(const Value& q, const Value& k, const Value& v, const Value& mask, Value& shares) {
    Tape& tape = net_.tape;
    Value scores = net_.matmul(q, k, q.count / shape_.width * shape_.heads * net_.situation.length,
                               shape_.heads);
    scores = times_number(tape, scores);
    scores = plus(tape, scores, mask);
    if (net_.situation.low) scores = cast(tape, scores, Type::float32);
    shares = softmax(tape, scores);
    shares = net_.dropout(shares, shape_.attention_dropout);
    const Value out = net_.matmul(shares, v, q.count, shape_.heads);
    return copied(tape, out);
  }

  Value added(const Value& x, const Value& before, std::int64_t in, std::string_view path) {
    Value states = net_.linear(x, in, shape_.width, path);
    states = net_.dropout(states, shape_.dropout);
    return net_.layer_norm(plus(net_.tape, states, before), shape_.width);
  }

  Network& net_;
  const model::BertShape shape_;
};

Value bert_classifier(Network& net, const Value& states, const model::BertShape& shape) {
  const model::ModelConfig& config = net.config;
  const double dropped = config.number(config.is_null("classifier_dropout") ? "hidden_dropout_prob"
                                                                            : "classifier_dropout");
  const std::int64_t width = shape.width;
  if (!shape.roberta) net.begin_module("pooler");
  Value x = slice(net.tape, states, net.situation.rows * width);
  if (shape.roberta) {
    net.begin_module("classifier", true);
    x = net.dropout(x, dropped);
  }
  x = net.linear(x, width, width, "dense", {.is_head = true});
  x = unary(net.tape, x, Keeps::result);
  if (!shape.roberta) net.begin_module("classifier", true);
  x = net.dropout(x, dropped);
  return net.classification_loss(
      net.linear(x, width, config.labels(), "out_proj", {.is_head = true}));
}

struct Tables {
  Parameter &words, &places, &segments;
};

Value embedded(Network& net, const model::BertShape& shape, const Tables& tables) {
  const std::int64_t tokens = net.situation.tokens();
  const Value word = net.embedding(tables.words, tokens);
  const Value segment = net.embedding(tables.segments, tokens);
  Value sum = plus(net.tape, word, segment);
  const Value placed = net.embedding(tables.places, shape.roberta ? tokens : net.situation.length);
  add_to(net.tape, sum, expanded(net.tape, placed, sum.count));
  sum = net.layer_norm(sum, shape.width);
  return net.dropout(sum, shape.dropout);
}

Value encoded(Network& net, const model::BertShape& shape, const Tables& tables) {
  const auto encoder = std::make_shared<Bert>(net, shape);
  const Value states = embedded(net, shape, tables);
  const auto with = std::make_shared<BertInputs>();
  if (net.situation.eager) {
    const std::int64_t square = shape.decoder ? net.situation.length : 1;
    with->mask = net.tape.make(net.situation.tokens() * square, net.situation.type);
  }
  const Value result = net.layers(
      shape.layers, [encoder, with](const Value& x) { return encoder->layer(x, *with); }, states,
      "encoder.layer");
  with->shares.reset();
  return result;
}

}  // namespace

Value bert(Network& net) {
  const model::BertShape shape(net.config);
  net.begin_module("embeddings");
  const Tables tables{net.token_table(shape.vocabulary, shape.width),
                      net.weight(shape.positions, shape.width),
                      net.weight(shape.segments, shape.width)};
  net.buffer_bytes += 2 * shape.positions * size_of(Type::int64);
  const Value states = encoded(net, shape, tables);
  if (net.situation.task == model::Task::sequence_classification)
    return bert_classifier(net, states, shape);
  net.begin_module(shape.roberta ? "lm_head" : "cls", true);
  return masked_lm_head(net, states, tables.words, shape.roberta ? "" : shape.function);
}

}  // namespace headroom::forecast::detail
