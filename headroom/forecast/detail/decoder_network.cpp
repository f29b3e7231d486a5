// The order of operations is that of models/families/: decoder.cpp, gpt2.cpp, gpt_neo.cpp,
// gpt_neox.cpp, opt.cpp and phi.cpp.
#include "headroom/forecast/detail/decoder_network.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace headroom::forecast::detail {
namespace {

// The inputs of a layer besides the states.
struct DecoderInputs {
  Network::Rotation rotation;
  Value full, windowed;                          // masks
  Value weights = {}, gradient_of_weights = {};  // GPT-Neo's, of the previous layer
};

class Decoder {
 public:
  Decoder(Network& net, const DecoderKind& kind) : net_(net), tape_(net.tape), of_(kind) {}

  Value layer(int kind, const Value& x, DecoderInputs& with) {
    let_go(with);
    return of_.parallel ? side_by_side(kind, x, with) : in_turn(kind, x, with);
  }

  Value norm(const Value& x) {
    return of_.norm == NormKind::rms          ? net_.rms_norm(x, of_.width)
           : of_.norm == NormKind::offset_rms ? net_.offset_rms_norm(x, of_.width)
                                              : net_.layer_norm(x, of_.width, of_.affine);
  }

 private:
  // ---- Layers ----

  Value in_turn(int kind, const Value& x, DecoderInputs& with) {
    Value weights;
    Value states = of_.norm_first ? norm(x) : x;
    Value attended = attention(kind, states, with, weights);
    if (!of_.holds_inputs) states.reset();
    if (of_.sandwich) attended = norm(attended);
    if (!of_.holds_inputs) attended = net_.dropout(attended, of_.residual_dropout);
    states = plus(tape_, x, attended);
    if (!of_.holds_inputs) attended.reset();
    if (!of_.norm_first) states = norm(states);
    const Value residual = states;
    if (of_.norm_first) states = norm(states);
    Value wide = of_.holds_inputs ? feed_forward(states) : feed_forward(std::move(states));
    if (of_.sandwich) wide = norm(wide);
    wide = net_.dropout(wide, of_.residual_dropout);
    Value sum = plus(tape_, residual, wide);
    if (of_.holds_last_weights) hold(with, weights);
    if (of_.norm_first) return sum;
    wide.reset();
    return norm(sum);
  }

  Value side_by_side(int kind, const Value& x, const DecoderInputs& with) {
    Value weights, states = norm(x);
    Value attended = attention(kind, states, with, weights);
    if (!of_.one_norm) states.reset();
    attended = net_.dropout(attended, of_.residual_dropout);
    if (!of_.one_norm) states = norm(x);
    Value wide = of_.one_norm ? feed_forward(states) : feed_forward(std::move(states));
    wide = net_.dropout(wide, of_.residual_dropout);
    const Value sum = plus(tape_, wide, attended);
    if (!of_.one_norm) wide.reset();
    return plus(tape_, sum, x);
  }

  // GPT-Neo holds a layer's attention weights until the next layer has run. Reentrant checkpointing
  // treats them as a result of the rerun, with a gradient of zeros.
  void hold(DecoderInputs& with, const Value& weights) {
    const bool again = tape_.phase() == Phase::backward;
    if (again && net_.settings.checkpointing_kind != model::CheckpointingKind::reentrant) return;
    with.weights = weights;
    if (again) with.gradient_of_weights = tape_.make(weights.count, weights.type);
  }
  void let_go(DecoderInputs& with) {
    if (tape_.phase() != Phase::backward) return;
    with.weights.reset();
    with.gradient_of_weights.reset();
  }

  // ---- Attention ----

  struct Heads {
    Value q, k, v, joined = {};
  };

  Value attention(int kind, const Value& x, const DecoderInputs& with, Value& weights) {
    Heads heads = of_.projection == QueryKeyValue::separate ? separate(x) : joined(x);
    turn(heads.q, heads.k, with.rotation);
    net_.keep(heads.k, heads.v);
    Value out = attended(heads, kind == 1 ? with.windowed : with.full, weights);
    out = net_.linear(out, of_.heads * of_.head_width, of_.width, of_.names.out,
                      {.with_bias = of_.out_bias});
    if (!of_.holds_weights) weights.reset();
    return of_.holds_inputs ? net_.dropout(out, of_.residual_dropout) : out;
  }

  Value projected(const Value& x, std::int64_t heads, std::string_view path) {
    return net_.heads_of(
        net_.linear(x, of_.width, heads * of_.head_width, path, {.with_bias = of_.qkv_bias}));
  }

  Heads separate(const Value& x) {
    const bool rms = of_.normalised_heads && of_.norm == NormKind::rms;
    const auto normed = [&](Value states) {
      return rms ? net_.rms_norm(states, of_.head_width) : states;
    };
    Heads heads;
    heads.q = normed(projected(x, of_.heads, of_.names.q));
    if (of_.scaled_queries) heads.q = times_number(tape_, heads.q);
    heads.k = normed(projected(x, of_.key_heads, of_.names.k));
    heads.v = projected(x, of_.key_heads, of_.names.v);
    if (of_.normalised_heads && !rms) {
      heads.q = net_.layer_norm(heads.q, of_.head_width);
      heads.k = net_.layer_norm(heads.k, of_.head_width);
    }
    return heads;
  }

  Heads joined(const Value& x) {
    const std::int64_t all = of_.heads + 2 * of_.key_heads;
    const Value made = projected(x, all, of_.names.q);
    const std::int64_t of_q = made.count / all * of_.heads, of_k = made.count / all * of_.key_heads;
    if (of_.projection == QueryKeyValue::sliced)
      return {slice(tape_, made, of_q), slice(tape_, made, of_k), slice(tape_, made, of_k)};
    const std::vector<Value> parts = split(tape_, made, {of_q, of_k, of_k});
    return {parts[0], parts[1], parts[2], of_.holds_joined ? made : Value()};
  }

  void turn(Value& q, Value& k, const Network::Rotation& by) {
    if (of_.rotated_width == 0) return;
    if (of_.rotated_part == Rotated::both_parts_first) return turn_parts(q, k, by);
    const auto rotated = [&](const Value& x) {
      if (of_.rotated_part == Rotated::whole_head) return net_.rotated(x, by);
      const Value part = net_.rotated(slice(tape_, x, part_of(x)), by);
      return cat(tape_, part, slice(tape_, x, x.count - part_of(x)));
    };
    Value rotated_q = rotated(q), rotated_k = rotated(k);
    q = std::move(rotated_q);
    k = std::move(rotated_k);
  }

  // All four parts exist before the first two are joined again.
  void turn_parts(Value& q, Value& k, const Network::Rotation& by) {
    const Value rest_q = slice(tape_, q, q.count - part_of(q)),
                rest_k = slice(tape_, k, k.count - part_of(k));
    const Value rotated_q = net_.rotated(slice(tape_, q, part_of(q)), by);
    const Value rotated_k = net_.rotated(slice(tape_, k, part_of(k)), by);
    q = cat(tape_, rotated_q, rest_q);
    k = cat(tape_, rotated_k, rest_k);
  }

  [[nodiscard]] std::int64_t part_of(const Value& x) const {
    return x.count / of_.head_width * of_.rotated_width;
  }

  Value attended(const Heads& heads, const Value& mask, Value& weights) {
    if (of_.only_in_float || (of_.by_hand && net_.situation.eager))
      return by_hand(heads, mask, weights);
    const Network::Heads call{.heads = of_.heads,
                              .key_heads = of_.key_heads,
                              .width = of_.head_width,
                              .groups = of_.heads / of_.key_heads,
                              .dropout = of_.attention_dropout,
                              .softcap = of_.softcap};
    return net_.attend(heads.q, heads.k, heads.v, mask, call, &weights);
  }

  Value by_hand(const Heads& heads, const Value& mask, Value& weights) {
    Value out;
    {
      const Value q = of_.only_in_float ? cast(tape_, heads.q, Type::float32) : heads.q;
      const Value k = of_.only_in_float ? cast(tape_, heads.k, Type::float32) : heads.k;
      const std::int64_t count = q.count / of_.width * of_.heads * net_.situation.length;
      weights = causal_weights(net_.matmul(q, k, count, of_.heads), heads.v.type, mask);
      out = net_.matmul(weights, heads.v, q.count, of_.heads);
    }
    return copied(tape_, out);
  }

  Value causal_weights(Value products, Type type, const Value& mask) {
    if (of_.scaled) products = times_number(tape_, products);
    if (of_.scaled_by_layer && of_.causal_buffers) products = times_number(tape_, products);
    if (of_.causal_buffers) products = masked(tape_, products);
    if (mask) products = plus(tape_, products, mask);
    if (net_.situation.low) products = cast(tape_, products, Type::float32);
    products = softmax(tape_, products);
    products = cast(tape_, products, type);
    return net_.dropout(products, of_.attention_dropout);
  }

  // ---- The feed-forward block ----

  Value feed_forward(Value x) {
    switch (of_.block) {
      case FeedForward::plain:
        return plain(std::move(x));
      case FeedForward::gated:
        return gated(net_, of_, x, {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"});
      case FeedForward::joined:
        return joined_gate(x);
      case FeedForward::experts:
        return experts(net_, of_, x);
    }
    return {};
  }

  Value widened(const Value& x, std::string_view path, std::int64_t times = 1) {
    return net_.linear(x, of_.width, times * of_.inner, path, {.with_bias = of_.mlp_bias});
  }
  Value narrowed(const Value& x, std::string_view path) {
    return net_.linear(x, of_.inner, of_.width, path, {.with_bias = of_.mlp_bias});
  }

  Value plain(Value x) {
    Value inner = widened(x, of_.names.up);
    if (of_.frees_mlp_input) x.reset();
    inner = activation(tape_, of_.function, inner);
    return narrowed(inner, of_.names.down);
  }

  Value joined_gate(const Value& x) {
    const Value both = widened(x, "mlp.gate_up_proj", 2);
    const std::int64_t half = both.count / 2;
    const std::vector<Value> halves = split(tape_, both, {half, half});
    Value inner;
    {
      const Value gate = activation(tape_, of_.function, halves[0]);
      inner = times(tape_, halves[1], gate);
    }
    return narrowed(inner, "mlp.down_proj");
  }

  Network& net_;
  Tape& tape_;
  const DecoderKind of_;
};

// ---- Around the layers ----

void make_masks(DecoderInputs& with, Network& net, const DecoderKind& of, Type type) {
  const bool eager = net.situation.eager;
  const auto some = [&](int kind) {
    return std::find(of.layers.begin(), of.layers.end(), kind) != of.layers.end();
  };
  if (some(0) || of.always_full_mask) with.full = net.causal_mask({}, type, eager);
  if (some(1) || of.always_windowed_mask) with.windowed = net.causal_mask(of.window, type, eager);
}

Value decoded(Network& net, const DecoderKind& of, Parameter& words, Parameter* places) {
  const std::int64_t tokens = net.situation.tokens();
  const auto with = std::make_shared<DecoderInputs>();
  Value embedded = net.embedding(words, tokens);
  const bool scales_first = of.scaled_embedding && net.situation.newest;
  if (scales_first) embedded = times_number(net.tape, embedded);
  if (of.additive_mask)
    with->full = net.additive_causal_mask(embedded.type, of.only_in_float || net.situation.eager,
                                          !of.only_in_float || net.situation.has_mask);
  Value placed;
  if (places != nullptr)
    placed = net.embedding(*places, of.counts_by_mask ? tokens : net.situation.length);
  const bool projects = of.token_width != of.width;
  if (projects)
    embedded = net.linear(embedded, of.token_width, of.width, "project_in", {.with_bias = false});
  Value states = embedded;
  if (placed)
    states = plus(net.tape, embedded,
                  of.counts_by_mask ? placed : expanded(net.tape, placed, embedded.count));
  if (!of.additive_mask) make_masks(*with, net, of, embedded.type);
  states = net.dropout(states, of.embedding_dropout);
  if (of.frees_embedding) embedded = states;
  if (of.rotated_width > 0) with->rotation = net.rotation(of.rotated_width, embedded.type);
  if (of.scaled_embedding && !scales_first) states = times_number(net.tape, states);
  const auto layers = std::make_shared<Decoder>(net, of);
  states = net.layers(
      of.layers, [layers, with](int kind, const Value& x) { return layers->layer(kind, x, *with); },
      std::move(states), of.names.layers);
  with->weights.reset();
  net.begin_module(std::string(of.names.norm));
  if (of.final_norm) states = layers->norm(states);
  if (projects)
    states = net.linear(states, of.width, of.token_width, "project_out", {.with_bias = false});
  return states;
}

// Predicts the next token, or the class of a row.
Value decoder_head(Network& net, const DecoderKind& of, const Value& states, Parameter& words) {
  const bool classifies = net.situation.task == model::Task::sequence_classification;
  net.begin_module(classifies ? "score" : std::string(of.names.head), true);
  if (classifies) {
    const Value everywhere = net.linear(states, of.token_width, net.config.labels(), "score",
                                        {.with_bias = false, .is_head = true});
    return net.classification_loss(net.last_tokens(everywhere));
  }
  const bool tied = net.config.flag("tie_word_embeddings");
  Parameter& weight = tied ? words : net.weight(of.vocabulary, of.token_width);
  Parameter* const bias = of.head_bias ? &net.vector(of.vocabulary) : nullptr;
  Network::TokenHead head{.weight = [&weight]() -> Parameter& { return weight; }, .bias = bias};
  if (of.logit_cap != 0)
    head.after = [&net](const Value& product) {
      Value logits = times_number(net.tape, product);
      logits = unary(net.tape, logits, Keeps::result);
      return times_number(net.tape, logits);
    };
  return net.token_loss(head, states, of.token_width, of.vocabulary, true);
}

}  // namespace

Value decoder(Network& net, const DecoderKind& of) {
  net.begin_module(std::string(of.names.words));
  Parameter& words = net.token_table(of.vocabulary, of.token_width);
  Parameter* places = nullptr;
  if (of.positions > 0) {
    net.begin_module(std::string(of.names.places));
    places = &net.weight(of.positions + of.first, of.width);
  }
  net.buffer_bytes +=
      (net.situation.newest ? 2 : 1) * of.rotated_width / 2 * size_of(Type::float32);
  if (of.causal_buffers)
    net.buffer_bytes += static_cast<std::int64_t>(of.layers.size()) *
                        (of.positions * of.positions + size_of(net.situation.type));
  return decoder_head(net, of, decoded(net, of, words, places), words);
}

}  // namespace headroom::forecast::detail
