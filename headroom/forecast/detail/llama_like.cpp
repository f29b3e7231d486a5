// Llama and the decoders built after it: models/families/decoder.cpp.
#include <algorithm>
#include <cmath>
#include <memory>

#include "headroom/forecast/detail/architectures.h"

namespace headroom::forecast::detail {
namespace {

struct Shape {
  explicit Shape(const model::ModelConfig& config);

  std::int64_t width, heads, key_heads, head_width, turned, inner, vocabulary;
  double attention_dropout, residual_dropout = 0, softcap = 0, logit_cap = 0;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool normalised_heads = false, offset_norms = false, sandwich = false, joined = false;
  std::int64_t experts = 0, experts_each = 0;
  std::optional<std::int64_t> window = {};
  std::vector<int> kinds;  // 1: a layer with a window
  bool always_full_mask = false, always_windowed_mask = false;
  std::string function;
};

bool flag_if_known(const model::ModelConfig& config, std::string_view key) {
  return config.has(key) && config.flag(key);
}

void set_windows(Shape& shape, const model::ModelConfig& config) {
  const std::string& type = config.type();
  if (type == "mistral" || type == "phi3" || type == "mixtral") {
    shape.window = config.optional_count("sliding_window");
    std::fill(shape.kinds.begin(), shape.kinds.end(), shape.window ? 1 : 0);
  } else if (type == "gemma2") {
    shape.window = config.at_least_1("sliding_window");
    for (std::size_t i = 0; i < shape.kinds.size(); i += 2) shape.kinds[i] = 1;
  } else if (config.has("use_sliding_window") && config.flag("use_sliding_window")) {
    shape.window = config.optional_count("sliding_window");
    const auto first = static_cast<std::size_t>(config.count("max_window_layers"));
    for (std::size_t i = first; i < shape.kinds.size(); ++i) shape.kinds[i] = shape.window ? 1 : 0;
  }
  if (!config.has("layer_types") || config.is_null("layer_types")) return;
  const std::vector<std::string> said = config.texts("layer_types");
  if (said.size() != shape.kinds.size())
    config.refuse("layer_types", "one type for each of num_hidden_layers");
  for (std::size_t i = 0; i < said.size(); ++i)
    shape.kinds[i] = said[i] == "sliding_attention" ? 1 : 0;
}

double cap(const model::ModelConfig& config, std::string_view key) {
  return config.has(key) && !config.is_null(key) ? config.number(key) : 0;
}

Shape::Shape(const model::ModelConfig& config)
    : width(config.at_least_1("hidden_size")),
      heads(config.at_least_1("num_attention_heads")),
      key_heads(config.optional_count("num_key_value_heads").value_or(heads)),
      head_width(width / heads),
      turned(0),
      inner(config.at_least_1("intermediate_size")),
      vocabulary(config.at_least_1("vocab_size")),
      attention_dropout(config.number("attention_dropout")),
      kinds(static_cast<std::size_t>(config.at_least_1("num_hidden_layers")), 0),
      function(config.has("hidden_activation") && !config.has("hidden_act") ? "hidden_activation"
                                                                            : "hidden_act") {
  const std::string& type = config.type();
  if (config.has("head_dim")) head_width = config.optional_count("head_dim").value_or(head_width);
  if (head_width < 1) config.refuse("num_attention_heads", "at most hidden_size");
  if (key_heads < 1 || heads % key_heads != 0)
    config.refuse("num_key_value_heads", "a divisor of num_attention_heads");
  turned = head_width;
  if (config.has("partial_rotary_factor"))
    turned = static_cast<std::int64_t>(static_cast<double>(head_width) *
                                       config.number("partial_rotary_factor"));
  qkv_bias = type == "qwen2" || flag_if_known(config, "attention_bias");
  out_bias = flag_if_known(config, "attention_bias");
  mlp_bias = flag_if_known(config, "mlp_bias");
  normalised_heads = type == "qwen3";
  offset_norms = type == "gemma" || type == "gemma2";
  sandwich = type == "gemma2";
  joined = type == "phi3";
  if (joined) residual_dropout = config.number("resid_pdrop");
  if (type == "mixtral") {
    experts = config.at_least_1("num_local_experts");
    experts_each = config.at_least_1("num_experts_per_tok");
  }
  softcap = cap(config, "attn_logit_softcapping");
  logit_cap = cap(config, "final_logit_softcapping");
  always_full_mask = config.has("layer_types");
  always_windowed_mask = type == "gemma2";
  set_windows(*this, config);
}

// The inputs of a layer besides the states.
struct Surroundings {
  Network::Rotation rotation;
  Value full, windowed;
};

class Decoder {
 public:
  Decoder(Network& net, const Shape& shape) : net_(net), shape_(shape) {}

  Value layer(int kind, Value states, const Surroundings& with) {
    Value residual = states;
    states = norm(states);
    Value weights;
    states = attention(kind, states, with, weights);
    if (shape_.sandwich) states = norm(states);
    states = plus(net_.tape, residual, net_.dropout(states, shape_.residual_dropout));
    residual = states;
    states = norm(states);
    states = shape_.experts > 0 ? moe(states) : mlp(states);
    if (shape_.sandwich) states = norm(states);
    return plus(net_.tape, residual, net_.dropout(states, shape_.residual_dropout));
  }

  Value norm(const Value& states) {
    return shape_.offset_norms ? net_.offset_rms_norm(states, shape_.width)
                               : net_.rms_norm(states, shape_.width);
  }

 private:
  Value attention(int kind, const Value& states, const Surroundings& with, Value& weights) {
    Value q, k, v;
    if (shape_.joined)
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

  Value turned(const Value& x, const Surroundings& with) {
    if (!shape_.joined) return net_.turned(x, with.rotation);
    const std::int64_t part = x.count / shape_.head_width * shape_.turned;
    const Value result = net_.turned(slice(net_.tape, x, part), with.rotation);
    return cat(net_.tape, result, slice(net_.tape, x, x.count - part));
  }

  Value mlp(const Value& x) {
    if (shape_.joined) return joined_mlp(x);
    return gated(x, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj");
  }

  Value gated(const Value& x, std::string_view gate, std::string_view up, std::string_view down) {
    Value inner = net_.linear(x, shape_.width, shape_.inner, gate, {.with_bias = shape_.mlp_bias});
    inner = net_.activation(shape_.function, inner);
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
      const Value gate = net_.activation(shape_.function, halves[0]);
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
  const Shape shape_;
};

std::shared_ptr<Surroundings> surroundings(Network& net, const Shape& shape, Type type) {
  auto with = std::make_shared<Surroundings>();
  const bool any = std::find(shape.kinds.begin(), shape.kinds.end(), 1) != shape.kinds.end();
  const bool all = std::find(shape.kinds.begin(), shape.kinds.end(), 0) == shape.kinds.end();
  const bool eager = net.situation.eager;
  if (!all || shape.always_full_mask) with->full = net.causal_mask({}, type, eager);
  if (any || shape.always_windowed_mask)
    with->windowed = net.causal_mask(shape.window, type, eager);
  with->rotation = net.rotation(shape.turned, type);
  return with;
}

}  // namespace

Value llama_like(Network& net) {
  const Shape shape(net.config);
  net.begin_module("embed_tokens");
  Parameter& table = net.token_table(shape.vocabulary, shape.width);
  net.buffer_bytes += shape.turned / 2 * 4;
  const auto decoder = std::make_shared<Decoder>(net, shape);
  const auto decoded = [&] {
    const Value embedded = net.embedding(table, net.situation.rows * net.situation.length);
    const auto with = surroundings(net, shape, embedded.type);
    Value states = shape.offset_norms ? times_number(net.tape, embedded) : embedded;
    states = net.layers(
        shape.kinds,
        [decoder, with](int kind, const Value& x) { return decoder->layer(kind, x, *with); },
        std::move(states));
    net.begin_module("norm");
    return decoder->norm(states);
  };
  return decoder_head(net, decoded(), shape.width, table, {.cap = shape.logit_cap});
}

}  // namespace headroom::forecast::detail
