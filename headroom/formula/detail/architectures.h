// The published models as descriptions of what they allocate: in the order in which the models of
// models/families run, which is that of transformers. Each gives the loss, or nothing where there
// is none to be had (inference).
#pragma once

#include "headroom/formula/detail/network.h"

namespace headroom::formula::detail {

[[nodiscard]] Value llama_like(Network& net);  // llama, mistral, qwen, gemma, phi3, mixtral
[[nodiscard]] Value gpt2(Network& net);
[[nodiscard]] Value gpt_neo(Network& net);
[[nodiscard]] Value gpt_neox(Network& net);
[[nodiscard]] Value opt(Network& net);
[[nodiscard]] Value phi(Network& net);
[[nodiscard]] Value bert(Network& net);  // and roberta
[[nodiscard]] Value distilbert(Network& net);
[[nodiscard]] Value t5(Network& net);
[[nodiscard]] Value vit(Network& net);  // and deit
[[nodiscard]] Value resnet(Network& net);
[[nodiscard]] Value convnext(Network& net);

// That of the config's type.
[[nodiscard]] Value described(Network& net);
// What the type can do, its usual task first.
[[nodiscard]] std::vector<Task> tasks_of(const ModelConfig& config);

// The head of a decoder that says the next token, or a row's class; and their losses.
struct DecoderHead {
  std::string_view name = "lm_head";
  bool with_bias = false;
  double cap = 0;
};
[[nodiscard]] Value decoder_head(Network& net, const Value& states, std::int64_t width,
                                 Parameter& embedding, const DecoderHead& head);

}  // namespace headroom::formula::detail
