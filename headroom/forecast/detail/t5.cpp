// T5: models/families/t5.cpp and t5_attention.cpp.
#include <memory>

#include "headroom/forecast/detail/architectures.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

// One of the two stacks of layers: its sizes, and the values that its layers share.
struct StackInputs {
  std::int64_t length;
  Value mask, encoder_mask;
  Value bias, cross_bias;  // of positions; the first layer makes them
  Value gradient_of_zeros;
  Value encoded;
  std::int64_t encoded_length = 0;
};

class Stack {
 public:
  Stack(Network& net, const model::T5Shape& shape, bool decoder)
      : net_(net), shape_(shape), decoder_(decoder) {}

  // `first`: the block that makes the biases, and makes them again when it reruns.
  Value block(Value states, StackInputs& with, bool first) {
    const bool again = first && net_.tape.phase() == Phase::backward;
    const Value bias = again ? net_.tape.make(with.bias.count, with.bias.type) : Value();
    const Value cross_bias =
        again && decoder_ ? net_.tape.make(with.cross_bias.count, with.cross_bias.type) : Value();
    states = attention_layer(states, with, false);
    states = clamped(states);
    if (decoder_) {
      states = attention_layer(states, with, true);
      states = clamped(states);
    }
    Value forwarded = net_.t5_norm(states, shape_.width);
    forwarded = dense(forwarded);
    return clamped(plus(net_.tape, states, net_.dropout(forwarded, shape_.dropout)));
  }

  // The first layer's table of relative distances; one number per head and pair of tokens.
  void make_bias(Parameter& table, StackInputs& with) {
    Tape& tape = net_.tape;
    const std::int64_t pairs = with.length * with.length;
    const Value buckets = tape.make(pairs, Type::int64);
    tape.touch(5 * buckets.count * size_of(Type::int64));
    Value values = net_.embedding(table, pairs);
    if (net_.situation.newest) {
      with.bias = values;
      return;
    }
    const Value wide = expanded(tape, values, net_.situation.rows * values.count);
    values.reset();
    with.bias = plus(tape, wide, with.mask);
    kept_buckets_ = buckets;
  }
  // The bias of cross attention is zeros plus the mask. With checkpointing the zeros get a
  // gradient, which lives as long as they do.
  static void make_cross_bias(Network& net, std::int64_t heads,
                              const std::shared_ptr<StackInputs>& with) {
    Tape& tape = net.tape;
    const std::int64_t each = heads * with->length * with->encoded_length;
    const Value zeros = tape.make(each, net.situation.type);
    with->cross_bias =
        net.situation.newest ? zeros : tape.make(net.situation.rows * each, zeros.type);
    if (net.settings.checkpoint_every == 0 || !tape.records()) return;
    tape.record(with->cross_bias,
                [each, holder = std::weak_ptr<StackInputs>(with)](Tape& t, Gradients& g) {
                  if (const auto of = holder.lock())
                    of->gradient_of_zeros = t.make(each, g[0].type);
                });
  }

 private:
  // Half precision overflows in the larger models.
  Value clamped(const Value& states) {
    return states.type == Type::float16 ? unary(net_.tape, states, Keeps::input) : states;
  }

  Value attention_layer(const Value& states, StackInputs& with, bool cross) {
    const Value normed = net_.t5_norm(states, shape_.width);
    const Value attended = attention(normed, cross ? with.encoded : normed, with, cross);
    return plus(net_.tape, states, net_.dropout(attended, shape_.dropout));
  }

  Value attention(const Value& states, const Value& others, StackInputs& with, bool cross) {
    const std::int64_t inner = shape_.heads * shape_.head_width;
    const auto project = [&](const Value& x, std::string_view path) {
      return net_.heads_of(net_.linear(x, shape_.width, inner, path, {.with_bias = false}));
    };
    const Value q = project(states, "SelfAttention.q");
    Value k = project(others, "SelfAttention.k"), v = project(others, "SelfAttention.v");
    if (decoder_) net_.keep(k, v);
    const Value& bias = cross ? with.cross_bias : with.bias;
    const bool fused = net_.situation.newest && !net_.situation.eager;
    const Value out =
        fused ? in_one_kernel(q, k, v, bias, cross) : in_steps(q, k, v, bias, with, cross);
    return net_.linear(out, inner, shape_.width, "SelfAttention.o", {.with_bias = false});
  }

  // The bias is copied in every layer, and its gradient is that of all rows.
  Value in_one_kernel(const Value& q, const Value& k, const Value& v, const Value& bias,
                      bool cross) {
    Value own = cross ? bias : copied(net_.tape, bias);
    if (decoder_ && !cross) own = masked(net_.tape, own);
    if (net_.situation.low) own = cast(net_.tape, own, *net_.situation.low);
    own = expanded(net_.tape, own, net_.situation.rows * own.count);
    return net_.sdpa(q, k, v, own,
                     {.heads = shape_.heads,
                      .key_heads = shape_.heads,
                      .width = shape_.head_width,
                      .dropout = shape_.dropout,
                      .causal = false});
  }

  Value in_steps(const Value& q, const Value& k, const Value& v, const Value& bias,
                 const StackInputs& with, bool cross) {
    Tape& tape = net_.tape;
    const std::int64_t keys = cross ? with.encoded_length : with.length;
    Value scores =
        net_.matmul(q, k, net_.situation.rows * shape_.heads * with.length * keys, shape_.heads);
    if (net_.situation.newest) {
      scores = times_number(tape, scores);
      scores = plus(tape, scores, expanded(tape, bias, scores.count));
      if (decoder_ && !cross) scores = plus(tape, scores, with.mask);
    } else {
      add_to(tape, scores, bias);
    }
    Value shares = net_.situation.newest ? scores : cast(tape, scores, Type::float32);
    shares = softmax(tape, shares);
    shares = cast(tape, shares, scores.type);
    shares = net_.dropout(shares, shape_.dropout);
    return copied(tape, net_.matmul(shares, v, q.count, shape_.heads));
  }

  Value dense(const Value& x) {
    Tape& tape = net_.tape;
    const auto widen = [&](std::string_view path) {
      return net_.linear(x, shape_.width, shape_.inner, path, {.with_bias = false});
    };
    Value states = widen("DenseReluDense.wi_0");
    states = activation(tape, shape_.function, states);
    const Value gate = shape_.gated ? states : Value();
    const Value linear = shape_.gated ? widen("DenseReluDense.wi_1") : Value();
    if (shape_.gated) states = times(tape, gate, linear);
    states = net_.dropout(states, shape_.dropout);
    states = cast(tape, states, net_.situation.type);
    return net_.linear(states, shape_.inner, shape_.width, "DenseReluDense.wo",
                       {.with_bias = false});
  }

  Network& net_;
  const model::T5Shape shape_;
  const bool decoder_;
  Value kept_buckets_;
};

Value through(Network& net, const model::T5Shape& shape, Parameter& words, bool decoder,
              const Value& encoded) {
  const std::int64_t rows = net.situation.rows,
                     length = decoder ? net.situation.target : net.situation.length;
  const std::int64_t blocks = decoder ? shape.decoder_layers : shape.encoder_layers;
  const auto stack = std::make_shared<Stack>(net, shape, decoder);
  net.begin_module(decoder ? "decoder" : "encoder");
  const Value embedded = net.embedding(words, rows * length);
  const auto with = std::make_shared<StackInputs>();
  with->length = length;
  with->encoded = encoded;
  with->encoded_length = net.situation.length;
  const bool newest = net.situation.newest;
  if (!newest || (decoder && net.situation.eager))
    with->mask = net.tape.make(decoder ? rows * length * length : rows * length, embedded.type);
  if (decoder) {
    if (!newest) with->encoder_mask = net.tape.make(rows * net.situation.length, embedded.type);
    Stack::make_cross_bias(net, shape.heads, with);
  }
  stack->make_bias(net.weight(shape.buckets, shape.heads), *with);
  std::vector<int> kinds(static_cast<std::size_t>(blocks), 0);
  kinds.front() = 1;
  Value states = net.layers(
      kinds, [stack, with](int kind, const Value& x) { return stack->block(x, *with, kind == 1); },
      net.dropout(embedded, shape.dropout), decoder ? "decoder.block" : "encoder.block");
  net.begin_module(decoder ? "decoder.final_layer_norm" : "encoder.final_layer_norm");
  states = net.t5_norm(states, shape.width);
  return net.dropout(states, shape.dropout);
}

}  // namespace

Value t5(Network& net) {
  const model::T5Shape shape(net.config);
  const std::int64_t vocabulary = shape.vocabulary;
  const bool tied = net.config.flag("tie_word_embeddings");
  net.begin_module("shared");
  Parameter& words = net.token_table(vocabulary, shape.width);
  const Value encoded = through(net, shape, words, false, {});
  const Value decoded = through(net, shape, words, true, encoded);
  net.begin_module("lm_head", true);
  Value states = decoded;
  if (tied) states = times_number(net.tape, states);
  Parameter& head = tied ? words : net.weight(vocabulary, shape.width);
  return net.token_loss({.weight = [&head]() -> Parameter& { return head; }}, states, shape.width,
                        vocabulary, false);
}

}  // namespace headroom::forecast::detail
