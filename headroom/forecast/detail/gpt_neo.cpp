// GPT-Neo: models/families/gpt_neo.cpp. Its attention runs in float and has only the eager form.
#include <memory>

#include "headroom/forecast/detail/decoder_parts.h"
#include "headroom/model/shapes.h"

namespace headroom::forecast::detail {
namespace {

class GptNeo {
 public:
  GptNeo(Network& net, const model::GptNeoShape& shape) : net_(net), shape_(shape) {}

  Value layer(Value states, DecoderInputs& with) {
    let_go(with);
    Value residual = states, weights;
    states = net_.layer_norm(states, shape_.width);
    const Value attended = attention(states, with, weights);
    states = plus(net_.tape, attended, residual);
    residual = states;
    states = net_.layer_norm(states, shape_.width);
    const PlainMlp mlp{shape_.width, shape_.inner, "mlp.c_fc", "mlp.c_proj", shape_.function};
    const Value wide = net_.dropout(plain_mlp(net_, states, mlp), shape_.residual_dropout);
    Value sum = plus(net_.tape, residual, wide);
    hold(with, weights);
    return sum;
  }

 private:
  // The model holds a layer's attention weights until the next layer has run. Reentrant
  // checkpointing treats them as a result of the rerun, with a gradient of zeros.
  void hold(DecoderInputs& with, const Value& weights) {
    const bool again = net_.tape.phase() == Phase::backward;
    if (again && net_.settings.checkpointing_kind != model::CheckpointingKind::reentrant) return;
    with.weights = weights;
    if (again) with.gradient_of_weights = net_.tape.make(weights.count, weights.type);
  }
  void let_go(DecoderInputs& with) {
    if (net_.tape.phase() != Phase::backward) return;
    with.weights.reset();
    with.gradient_of_weights.reset();
  }

  Value attention(const Value& x, const DecoderInputs& with, Value& weights) {
    Tape& tape = net_.tape;
    const Value q = projected(x, "attention.q_proj");
    Value k = projected(x, "attention.k_proj"), v = projected(x, "attention.v_proj");
    net_.keep(k, v);
    Value out;
    {
      const Value queries = cast(tape, q, Type::float32), keys = cast(tape, k, Type::float32);
      const std::int64_t count = x.count / shape_.width * shape_.heads * net_.situation.length;
      weights = causal_shares(net_, net_.matmul(queries, keys, count, shape_.heads), v.type,
                              with.mask, {false, false, shape_.attention_dropout});
      out = net_.matmul(weights, v, q.count, shape_.heads);
    }
    out = copied(tape, out);
    out = net_.linear(out, shape_.width, shape_.width, "attention.out_proj");
    return net_.dropout(out, shape_.residual_dropout);
  }

  Value projected(const Value& x, std::string_view path) {
    return net_.heads_of(net_.linear(x, shape_.width, shape_.width, path, {.with_bias = false}));
  }

  Network& net_;
  const model::GptNeoShape shape_;
};

Value decoded(Network& net, const model::GptNeoShape& shape, Parameter& words, Parameter& places) {
  const Value embedded = net.embedding(words, net.situation.tokens());
  const auto with = std::make_shared<DecoderInputs>();
  with->mask = net.additive_causal_mask(embedded.type, true, net.situation.has_mask);
  const Value placed = net.embedding(places, net.situation.length);
  Value states = plus(net.tape, embedded, expanded(net.tape, placed, embedded.count));
  states = net.dropout(states, shape.embedding_dropout);
  const auto decoder = std::make_shared<GptNeo>(net, shape);
  states = net.layers(
      shape.layers, [decoder, with](const Value& x) { return decoder->layer(x, *with); },
      std::move(states), "h");
  with->weights.reset();
  net.begin_module("ln_f");
  return net.layer_norm(states, shape.width);
}

}  // namespace

Value gpt_neo(Network& net) {
  const model::GptNeoShape shape(net.config);
  net.begin_module("wte");
  Parameter& words = net.token_table(shape.vocabulary, shape.width);
  net.begin_module("wpe");
  Parameter& places = net.weight(shape.positions, shape.width);
  net.buffer_bytes +=
      shape.layers * (shape.positions * shape.positions + size_of(net.situation.type));
  return decoder_head(net, decoded(net, shape, words, places), shape.width, words, {});
}

}  // namespace headroom::forecast::detail
