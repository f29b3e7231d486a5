// One encoder for BERT, RoBERTa, DistilBERT, ViT and DeiT. The order of operations is that of
// models/families/: bert.cpp, bert_encoder.cpp, distilbert.cpp and vit.cpp.
#include <memory>
#include <string>

#include "headroom/base/error.h"
#include "headroom/forecast/detail/image_networks.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

struct EncoderNames {
  std::string_view layers = "encoder.layer";
  std::string_view q, k, v, out = "attention.output.dense", up = "intermediate.dense",
                            down = "output.dense";
};

// Defaults are those of BERT.
struct EncoderKind {
  EncoderNames names = {};
  std::int64_t width = 0, heads = 0, inner = 0, layers = 0;
  std::string function = {};
  double dropout = 0, attention_dropout = 0;
  bool causal = false, qkv_bias = true;
  bool norm_first = false;  // ViT: norms before both blocks instead of after them
  bool values_before_queries = false;
  bool newest = true;         // transformers 5: layers hold attention weights until they return
  bool holds_shares = false;  // until the next layer has run
  bool distilbert = false;  // scales queries instead of scores, and has its own order of lifetimes
};

template <typename Shape>
EncoderKind encoder_kind(const Shape& shape, const EncoderNames& names) {
  EncoderKind kind{.names = names, .width = shape.width, .heads = shape.heads};
  kind.inner = shape.inner;
  kind.layers = shape.layers;
  kind.function = shape.function;
  kind.dropout = shape.dropout;
  kind.attention_dropout = shape.attention_dropout;
  return kind;
}

// The inputs of a layer besides the states, and the last layer's attention weights, held by BERT's
// loop.
struct EncoderInputs {
  Value mask, shares = {};
};

class Encoder {
 public:
  Encoder(Network& net, const EncoderKind& kind) : net_(net), tape_(net.tape), of_(kind) {}

  // A feed-forward part that runs in chunks of tokens keeps the same in total.
  Value norm_after(const Value& x, EncoderInputs& with) {
    Value shares;
    Value attended = attention(x, with.mask, shares);
    attended =
        of_.distilbert ? norm_of_sum(attended, x) : added(attended, x, of_.width, of_.names.out);
    const Value out = added(widened(attended), attended, of_.inner, of_.names.down);
    if (tape_.phase() == Phase::forward && of_.holds_shares) with.shares = shares;
    return out;
  }

  // In 4.57 `normed` and `attended` live until the function returns, as in Python's frame.
  Value norm_before(const Value& x) {
    Value shares;
    Value normed = net_.layer_norm(x, of_.width);
    Value attended = dropped(attention(normed, {}, shares), of_.width, of_.names.out);
    if (of_.newest) normed.reset();
    const Value states = plus(tape_, attended, x);
    if (of_.newest) attended.reset();
    const Value out = widened(net_.layer_norm(states, of_.width));
    const Value narrow = dropped(out, of_.inner, of_.names.down);
    return plus(tape_, narrow, states);
  }

 private:
  Value widened(Value x) {
    const Value inner = net_.linear(x, of_.width, of_.inner, of_.names.up);
    x.reset();
    return activation(tape_, of_.function, inner);
  }

  Value dropped(const Value& x, std::int64_t in, std::string_view path) {
    return net_.dropout(net_.linear(x, in, of_.width, path), of_.dropout);
  }

  Value norm_of_sum(const Value& states, const Value& before) {
    return net_.layer_norm(plus(tape_, states, before), of_.width);
  }

  Value added(Value x, const Value& before, std::int64_t in, std::string_view path) {
    Value states = net_.linear(x, in, of_.width, path);
    if (of_.distilbert) x.reset();
    states = net_.dropout(states, of_.dropout);
    return norm_of_sum(states, before);
  }

  Value attention(const Value& x, const Value& mask, Value& shares) {
    const auto project = [&](std::string_view path) {
      return net_.heads_of(net_.linear(x, of_.width, of_.width, path, {.with_bias = of_.qkv_bias}));
    };
    Value q, k, v;
    if (!of_.values_before_queries) q = project(of_.names.q);
    k = project(of_.names.k);
    v = project(of_.names.v);
    if (of_.values_before_queries) q = project(of_.names.q);
    if (of_.causal) net_.keep(k, v);
    const Value out = attended(q, k, v, mask, shares);
    if (!of_.holds_shares && !of_.newest) shares.reset();
    return of_.distilbert ? net_.linear(out, of_.width, of_.width, of_.names.out) : out;
  }

  Value attended(Value& q, const Value& k, const Value& v, const Value& mask, Value& shares) {
    const Network::Heads call{.heads = of_.heads,
                              .key_heads = of_.heads,
                              .width = of_.width / of_.heads,
                              .dropout = of_.attention_dropout,
                              .causal = of_.causal};
    if (of_.norm_first) return net_.attend(q, k, v, mask, call, &shares);
    return net_.situation.eager ? by_hand(q, k, v, mask, shares) : net_.sdpa(q, k, v, mask, call);
  }

  Value by_hand(Value& q, const Value& k, const Value& v, const Value& mask, Value& shares) {
    const bool masks_itself = of_.distilbert && !of_.newest;
    if (masks_itself) q = times_number(tape_, q);
    Value scores =
        net_.matmul(q, k, q.count / of_.width * of_.heads * net_.situation.length, of_.heads);
    if (!masks_itself) scores = times_number(tape_, scores);
    if (masks_itself)
      scores = masked(tape_, scores);
    else if (mask)
      scores = plus(tape_, scores, mask);
    if (net_.situation.low) scores = cast(tape_, scores, Type::float32);
    shares = softmax(tape_, scores);
    shares = net_.dropout(shares, of_.attention_dropout);
    return copied(tape_, net_.matmul(shares, v, q.count, of_.heads));
  }

  Network& net_;
  Tape& tape_;
  const EncoderKind of_;
};

Value encoded(Network& net, const EncoderKind& of, const Value& embedded, const Value& mask = {}) {
  const auto encoder = std::make_shared<Encoder>(net, of);
  const auto with = std::make_shared<EncoderInputs>(EncoderInputs{mask});
  const auto layer = [encoder, with, first = of.norm_first](const Value& x) {
    return first ? encoder->norm_before(x) : encoder->norm_after(x, *with);
  };
  Value states = net.layers(of.layers, layer, embedded, of.names.layers);
  with->shares.reset();
  return states;
}

// ---- Embeddings ----

struct Tables {
  Parameter &words, &places;
  Parameter* segments = nullptr;
};

// `places`: the positions that are looked up, those of one row or of all.
Value embedded_tokens(Network& net, const Tables& tables, std::int64_t places, double dropout) {
  const std::int64_t tokens = net.situation.tokens(), width = tables.words.columns;
  const Value word = net.embedding(tables.words, tokens);
  const Value segment =
      tables.segments != nullptr ? net.embedding(*tables.segments, tokens) : Value();
  Value sum = segment ? plus(net.tape, word, segment) : Value();
  const Value placed = net.embedding(tables.places, places);
  if (segment && net.situation.newest)
    sum = plus(net.tape, sum, expanded(net.tape, placed, sum.count));
  else if (segment)
    add_to(net.tape, sum, expanded(net.tape, placed, sum.count));
  else
    sum = plus(net.tape, word, expanded(net.tape, placed, word.count));
  sum = net.layer_norm(sum, width);
  return net.dropout(sum, dropout);
}

Value embedded_patches(Network& net, const model::VitShape& shape) {
  Tape& tape = net.tape;
  const std::int64_t rows = net.situation.rows, width = shape.width;
  Image image{rows, shape.channels, shape.side, shape.side};
  Value patches = convolved(net, pixels_of(net, shape.channels), image,
                            {.out = width, .kernel = shape.patch, .stride = shape.patch}, true);
  Value tokens;
  for (std::int64_t i = 0; i < shape.extra; ++i) {
    const Value token = expanded(tape, tape.use(net.vector(width)), rows * width);
    tokens = tokens ? cat(tape, tokens, token) : token;
  }
  Value states = cat(tape, tokens, patches);
  patches.reset();
  states = plus(tape, states, tape.use(net.weight(shape.positions(), width)));
  return net.dropout(states, shape.dropout);
}

Value encoded_patches(Network& net, const model::VitShape& shape) {
  EncoderKind kind =
      encoder_kind(shape, {.q = "attention.query", .k = "attention.key", .v = "attention.value"});
  kind.qkv_bias = shape.qkv_bias;
  kind.newest = net.situation.newest;
  kind.norm_first = kind.values_before_queries = true;
  const Value embedded = embedded_patches(net, shape);
  const Value states = encoded(net, kind, embedded);
  net.begin_module("layernorm");
  return net.layer_norm(states, shape.width);
}

// ---- Heads ----

// Transforms the states and multiplies them by the word embedding (if tied). `function`: the
// activation's name.
Value masked_lm_head(Network& net, const Value& states, Parameter& table,
                     const std::string& function) {
  const std::int64_t width = table.columns, vocabulary = table.rows;
  const bool tied = net.config.flag("tie_word_embeddings");
  Parameter* const bias = &net.vector(vocabulary);
  const auto inner = [&net, width, function](const Value& x) {
    Value y = net.linear(x, width, width, "head.dense", {.is_head = true});
    y = activation(net.tape, function, y);
    return net.layer_norm(y, width);
  };
  const auto weight = [&net, &table, width, vocabulary, tied]() -> Parameter& {
    return tied ? table : net.weight(vocabulary, width);
  };
  return net.token_loss({.inner = inner, .weight = weight, .bias = bias}, states, width, vocabulary,
                        net.situation.task == model::Task::causal_lm);
}

Value classes(Network& net, const Value& x, std::int64_t width) {
  return net.classification_loss(
      net.linear(x, width, net.config.labels(), "classifier", {.is_head = true}));
}

// Classifies the first token of each row, after one more layer. `pooler`: its module, if it is not
// the classifier's.
Value classified(Network& net, const Value& states, std::int64_t width, double dropout,
                 std::string_view pooler, std::string_view classifier, bool drops_twice) {
  net.begin_module(std::string(pooler.empty() ? classifier : pooler), pooler.empty());
  Value x = slice(net.tape, states, net.situation.rows * width);
  if (drops_twice) x = net.dropout(x, dropout);
  x = net.linear(x, width, width, "dense", {.is_head = true});
  x = unary(net.tape, x, Keeps::result);
  if (!pooler.empty()) net.begin_module(std::string(classifier), true);
  return classes(net, net.dropout(x, dropout), width);
}

}  // namespace

Value bert(Network& net) {
  const model::BertShape shape(net.config);
  const bool roberta = shape.roberta;
  EncoderKind kind = encoder_kind(shape, {.q = "self.query", .k = "self.key", .v = "self.value"});
  kind.causal = shape.decoder;
  kind.newest = net.situation.newest;
  kind.holds_shares = !kind.newest;
  net.begin_module("embeddings");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  Parameter& places = net.weight(shape.positions, shape.width);
  const Tables tables{words, places, &net.weight(shape.segments, shape.width)};
  net.buffer_bytes += 2 * shape.positions * size_of(Type::int64);
  const std::int64_t length = net.situation.length, tokens = net.situation.tokens();
  Value states = embedded_tokens(net, tables, roberta ? tokens : length, shape.dropout);
  Value mask;
  if (net.situation.newest)
    mask = shape.decoder ? net.causal_mask({}, net.situation.type, net.situation.eager) : Value();
  else if (net.situation.eager)
    mask = net.tape.make(tokens * (shape.decoder ? length : 1), net.situation.type);
  states = encoded(net, kind, states, mask);
  mask.reset();
  if (net.situation.task == model::Task::sequence_classification) {
    const double dropout = net.config.number(
        net.config.is_null("classifier_dropout") ? "hidden_dropout_prob" : "classifier_dropout");
    return classified(net, states, shape.width, dropout, roberta ? "" : "pooler", "classifier",
                      roberta);
  }
  net.begin_module(roberta ? "lm_head" : "cls", true);
  return masked_lm_head(net, states, words, roberta ? "gelu" : shape.function);
}

Value distilbert(Network& net) {
  const model::DistilbertShape shape(net.config);
  EncoderKind kind = encoder_kind(shape, {.layers = "transformer.layer",
                                          .q = "q_lin",
                                          .k = "k_lin",
                                          .v = "v_lin",
                                          .out = "out_lin",
                                          .up = "ffn.lin1",
                                          .down = "ffn.lin2"});
  kind.distilbert = true;
  kind.newest = net.situation.newest;
  net.begin_module("embeddings");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  Parameter& places = net.weight(shape.positions, shape.width);
  if (net.config.flag("sinusoidal_pos_embds") && !kind.newest) places.trained = false;
  net.buffer_bytes += shape.positions * size_of(Type::int64);
  const Value states = encoded(
      net, kind, embedded_tokens(net, {words, places}, net.situation.length, shape.dropout));
  if (net.situation.task == model::Task::sequence_classification)
    return classified(net, states, shape.width, net.config.number("seq_classif_dropout"), "",
                      "head", false);
  net.begin_module("head", true);
  return masked_lm_head(net, states, words, shape.function);
}

Value vit(Network& net) {
  const model::VitShape shape(net.config);
  if (net.situation.image != shape.side)
    throw UsageError(expectation("forecast", "images of " + std::to_string(shape.side) + " pixels",
                                 std::to_string(net.situation.image),
                                 "the model's own size: positions are not interpolated"));
  net.begin_module("embeddings");
  const Value states = encoded_patches(net, shape);
  net.begin_module("classifier", true);
  const Value first = slice(net.tape, states, net.situation.rows * shape.width);
  return classes(net, first, shape.width);
}

}  // namespace headroom::forecast::detail
