// The masked-language-model head of BERT and its relatives.
#pragma once

#include <string_view>

#include "headroom/forecast/detail/architectures.h"

namespace headroom::forecast::detail {

// Transforms the states and multiplies them by the word embedding (if tied). `function`: the config
// key that names its activation; empty: gelu.
[[nodiscard]] Value masked_lm_head(Network& net, const Value& states, Parameter& words,
                                   std::string_view function);

}  // namespace headroom::forecast::detail
