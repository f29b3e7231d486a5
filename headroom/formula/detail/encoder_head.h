// The head that BERT and its relatives put on an encoder to say a word.
#pragma once

#include <string_view>

#include "headroom/formula/detail/architectures.h"

namespace headroom::formula::detail {

// A transformed state and the words' embedding once more. `function`: the key that names its
// activation; empty: gelu.
[[nodiscard]] Value masked_lm_head(Network& net, const Value& states, Parameter& words,
                                   std::string_view function);

}  // namespace headroom::formula::detail
