// Published models, described by what they allocate, in the execution order of the models in
// models/families, which is that of transformers. Each returns the loss, or an empty value for
// inference.
#pragma once

#include "headroom/forecast/detail/network.h"

namespace headroom::forecast::detail {

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

// Describes the model of the config's type.
[[nodiscard]] Value described(Network& net);

}  // namespace headroom::forecast::detail
