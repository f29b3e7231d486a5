#include "headroom/forecast/detail/encoder_head.h"

namespace headroom::forecast::detail {

Value masked_lm_head(Network& net, const Value& states, Parameter& table,
                     std::string_view function) {
  const std::int64_t width = table.columns, vocabulary = table.rows;
  const bool tied = net.config.flag("tie_word_embeddings");
  Parameter* const bias = &net.vector(vocabulary);
  const auto logits_of = [&net, &table, bias, width, vocabulary, tied,
                          function = std::string(function)](const Value& x) {
    Value y = net.linear(x, width, width, "head.dense", {.is_head = true});
    y = function.empty() ? unary(net.tape, y, Keeps::input) : activation(net.tape, function, y);
    y = net.layer_norm(y, width);
    return net.tied_linear(y, tied ? table : net.weight(vocabulary, width), bias);
  };
  return net.token_loss(logits_of, states, width, vocabulary,
                        net.situation.task == model::Task::causal_lm);
}

}  // namespace headroom::forecast::detail
