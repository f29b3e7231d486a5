// Llama and the decoders built after it: models/families/decoder.cpp.
#include <algorithm>
#include <memory>

#include "headroom/forecast/detail/architectures.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

// The inputs of a layer besides the states.
struct LlamaInputs {
  Network::Rotation rotation;
  Value full, windowed;
};

class Llama {
 public:
  Llama(Network& net, const model::LlamaShape& shape)
      : net_(net),
        shape_(shape),
        gemma_(net.config.type().starts_with("gemma")),
        sandwich_(net.config.type() == "gemma2"),
        joined_(net.config.type() == "phi3") {}

  Value layer(int kind, Value states, const LlamaInputs& with) {
    Value residual = states;
    states = norm(states);
    Value weights;
    states = attention(kind, states, with, weights);
    if (sandwich_) states = norm(states);
    states = plus(net_.tape, residual, net_.dropout(states, shape_.residual_dropout));
    residual = states;
    states = norm(states);
    states = shape_.experts > 0 ? moe(states) : mlp(states);
    if (sandwich_) states = norm(states);
    return plus(net_.tape, residual, net_.dropout(states, shape_.residual_dropout));
  }

  Value norm(const Value& states) {
    return gemma_ ? net_.offset_rms_norm(states, shape_.width)
                  : net_.rms_norm(states, shape_.width);
  }

 private:
  Value attention(int kind, const Value& states, const LlamaInputs& with, Value& weights) {
    Value q, k, v;
    if (joined_)
      joined_heads(states, q, k, v);
    else
      heads(states, q, k, v);
    {
      Value turned_q = turned(q, with), turned_k = turned(k, with);
      q = std::move(turned_q);
      k = std::move(turned_k);
    }
    net_.keep(k, v);
    Network::Heads of{
        .heads = shape_.heads, .key_heads = shape_.key_heads, .width = shape_.head_width};
    of.groups = shape_.heads / shape_.key_heads;
    of.dropout = shape_.attention_dropout;
    of.softcap = shape_.softcap;
    const Value out = net_.attend(q, k, v, kind == 1 ? with.windowed : with.full, of, &weights);
    return net_.linear(out, shape_.heads * shape_.head_width, shape_.width, "self_attn.o_proj",
                       {.with_bias = shape_.out_bias});
  }

  void heads(const Value& states, Value& q, Value& k, Value& v) {
    const auto project = [&](std::int64_t heads, std::string_view path, bool normalised) {
      Value x = net_.heads_of(net_.linear(states, shape_.width, heads * shape_.head_width, path,
                                          {.with_bias = shape_.qkv_bias}));
      return normalised ? net_.rms_norm(x, shape_.head_width) : x;
    };
    q = project(shape_.heads, "self_attn.q_proj", shape_.normalised_heads);
    k = project(shape_.key_heads, "self_attn.k_proj", shape_.normalised_heads);
    v = project(shape_.key_heads, "self_attn.v_proj", false);
  }

  void joined_heads(const Value& states, Value& q, Value& k, Value& v) {
    const std::int64_t all = (shape_.heads + 2 * shape_.key_heads) * shape_.head_width;
    const Value joined = net_.heads_of(
        net_.linear(states, shape_.width, all, "self_attn.qkv_proj", {.with_bias = false}));
    const std::int64_t tokens = joined.count / all, each = tokens * shape_.head_width;
    q = slice(net_.tape, joined, each * shape_.heads);
    k = slice(net_.tape, joined, each * shape_.key_heads);
    v = slice(net_.tape, joined, each * shape_.key_heads);
  }

  Value turned(const Value& x, const LlamaInputs& with) {
    if (!joined_) return net_.turned(x, with.rotation);
    const std::int64_t part = x.count / shape_.head_width * shape_.rope.width;
    const Value result = net_.turned(slice(net_.tape, x, part), with.rotation);
    return cat(net_.tape, result, slice(net_.tape, x, x.count - part));
  }

  Value mlp(const Value& x) {
    if (joined_) return joined_mlp(x);
    return gated(x, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj");
  }

  Value gated(const Value& x, std::string_view gate, std::string_view up, std::string_view down) {
    Value inner = net_.linear(x, shape_.width, shape_.inner, gate, {.with_bias = shape_.mlp_bias});
    inner = activation(net_.tape, shape_.function, inner);
    {
      const Value other =
          net_.linear(x, shape_.width, shape_.inner, up, {.with_bias = shape_.mlp_bias});
      inner = times(net_.tape, inner, other);
    }
    return net_.linear(inner, shape_.inner, shape_.width, down, {.with_bias = shape_.mlp_bias});
  }

  Value joined_mlp(const Value& x) {
    const Value both =
        net_.linear(x, shape_.width, 2 * shape_.inner, "mlp.gate_up_proj", {.with_bias = false});
    const std::int64_t half = both.count / 2;
    const std::vector<Value> halves = split(net_.tape, both, {half, half});
    Value inner;
    {
      const Value gate = activation(net_.tape, shape_.function, halves[0]);
      inner = times(net_.tape, halves[1], gate);
    }
    return net_.linear(inner, shape_.inner, shape_.width, "mlp.down_proj", {.with_bias = false});
  }

  // Assumes that tokens spread evenly over the experts.
  Value moe(const Value& x) {
    Tape& tape = net_.tape;
    const std::int64_t tokens = x.count / shape_.width, experts = shape_.experts;
    const Value logits =
        net_.linear(x, shape_.width, experts, "block_sparse_moe.gate", {.with_bias = false});
    Value shares = net_.softmax_in_float(logits);
    shares = gathered(tape, shares, tokens * shape_.experts_each);
    shares = cast(tape, unary(tape, shares, Keeps::result), x.type);
    const Value places = tape.make(tokens * shape_.experts_each * experts, Type::int64);
    const std::int64_t rows = tokens * shape_.experts_each / experts;
    return tape.repeat(
        experts, [&](const Value& sum) { return expert(x, shares, rows, sum); },
        tape.make(x.count, x.type));
  }

  Value expert(const Value& x, const Value& shares, std::int64_t rows, Value sum) {
    Tape& tape = net_.tape;
    const Value input = gathered(tape, x, rows * shape_.width);
    Value output = gated(input, "experts.w1", "experts.w3", "experts.w2");
    output = times(tape, output, gathered(tape, shares, rows));
    output = gathered_back(cast(tape, output, x.type), sum.count);
    add_to(tape, sum, output);
    return sum;
  }

  // index_add: the gradient of `rows` is gathered from that of the sum.
  Value gathered_back(const Value& rows, std::int64_t all) {
    Value result = rows;
    result.edge = {};
    result.count = all;
    if (net_.tape.records() && rows.edge)
      net_.tape.record(result, [to = rows.edge, count = rows.count](Tape& t, Gradients& g) {
        t.send(to, t.make(count, g[0].type));
      });
    return result;
  }

  Network& net_;
  const model::LlamaShape shape_;
  const bool gemma_;     // its norms scale by 1 + weight
  const bool sandwich_;  // a norm after each block, too
  const bool joined_;    // one projection for queries, keys and values, and one for gate and up
};

std::shared_ptr<LlamaInputs> inputs_of(Network& net, const model::LlamaShape& shape, Type type) {
  auto with = std::make_shared<LlamaInputs>();
  const auto layers_with = [&](bool window) {
    return std::find(shape.windowed.begin(), shape.windowed.end(), window) != shape.windowed.end();
  };
  const bool eager = net.situation.eager;
  if (layers_with(false) || shape.always_full_mask) with->full = net.causal_mask({}, type, eager);
  if (layers_with(true) || net.config.type() == "gemma2")
    with->windowed = net.causal_mask(shape.window, type, eager);
  with->rotation = net.rotation(shape.rope.width, type);
  return with;
}

}  // namespace

Value llama_like(Network& net) {
  const model::LlamaShape shape(net.config);
  net.begin_module("embed_tokens");
  Parameter& table = net.token_table(shape.vocabulary, shape.width);
  net.buffer_bytes += shape.rope.width / 2 * 4;
  const auto decoder = std::make_shared<Llama>(net, shape);
  const auto decoded = [&] {
    const Value embedded = net.embedding(table, net.situation.rows * net.situation.length);
    const auto with = inputs_of(net, shape, embedded.type);
    Value states =
        net.config.type().starts_with("gemma") ? times_number(net.tape, embedded) : embedded;
    states = net.layers(
        std::vector<int>(shape.windowed.begin(), shape.windowed.end()),
        [decoder, with](int kind, const Value& x) { return decoder->layer(kind, x, *with); },
        std::move(states));
    net.begin_module("norm");
    return decoder->norm(states);
  };
  return decoder_head(net, decoded(), shape.width, table, {.cap = shape.logit_cap});
}

}  // namespace headroom::forecast::detail
