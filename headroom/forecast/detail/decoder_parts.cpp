#include "headroom/forecast/detail/decoder_parts.h"

namespace headroom::forecast::detail {

Value plain_mlp(Network& net, const Value& x, const PlainMlp& of) {
  Value inner = net.linear(x, of.width, of.inner, of.up);
  inner = activation(net.tape, of.function, inner);
  return net.linear(inner, of.inner, of.width, of.down);
}

Value causal_shares(Network& net, Value products, Type type, const Value& mask,
                    const CausalShares& steps) {
  Tape& tape = net.tape;
  if (steps.scaled) products = times_number(tape, products);
  if (steps.scaled_by_layer) products = times_number(tape, products);
  products = masked(tape, products);
  if (mask) products = plus(tape, products, mask);
  if (net.situation.low) products = cast(tape, products, Type::float32);
  products = softmax(tape, products);
  products = cast(tape, products, type);
  return net.dropout(products, steps.dropout);
}

Value partly_turned(Network& net, const Value& x, std::int64_t head_width, std::int64_t turned,
                    const Network::Rotation& by) {
  const std::int64_t part = x.count / head_width * turned;
  const Value result = net.turned(slice(net.tape, x, part), by);
  return cat(net.tape, result, slice(net.tape, x, x.count - part));
}

Value decoder_head(Network& net, const Value& states, std::int64_t width, Parameter& embedding,
                   const DecoderHead& head) {
  net.begin_module(net.situation.task == model::Task::causal_lm ? std::string(head.name) : "score",
                   true);
  if (net.situation.task == model::Task::sequence_classification) {
    const Value everywhere = net.linear(states, width, net.config.labels(), "score",
                                        {.with_bias = false, .is_head = true});
    return net.classification_loss(net.last_tokens(everywhere));
  }
  const std::int64_t vocabulary = net.config.at_least_1("vocab_size");
  const bool tied = net.config.flag("tie_word_embeddings");
  Parameter& weight = tied ? embedding : net.weight(vocabulary, width);
  Parameter* const bias = head.with_bias ? &net.vector(vocabulary) : nullptr;
  const auto logits_of = [&net, &weight, bias, head](const Value& x) {
    Value logits = net.tied_linear(x, weight, bias);
    if (head.cap != 0) {
      logits = times_number(net.tape, logits);
      logits = unary(net.tape, logits, Keeps::result);
      logits = times_number(net.tape, logits);
    }
    return logits;
  };
  return net.token_loss(logits_of, states, width, vocabulary, true);
}

}  // namespace headroom::forecast::detail
