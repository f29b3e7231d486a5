// Common parts of GPT-2, GPT-Neo, GPT-NeoX, OPT and Phi.
#pragma once

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/forecast/detail/architectures.h"

namespace headroom::forecast::detail {

// The inputs of a layer besides the states.
struct DecoderInputs {
  Network::Rotation rotation;
  Value mask;
  Value weights = {}, gradient_of_weights = {};  // GPT-Neo's, of the previous layer
};

// An MLP with one activation between two linear layers; `function`: the config key that names it.
struct PlainMlp {
  std::int64_t width, inner;
  std::string_view up, down, function;
};
[[nodiscard]] Value plain_mlp(Network& net, const Value& x, const PlainMlp& of);

// Attention weights from the products of queries and keys, in steps that differ from Llama's.
struct CausalShares {
  bool scaled = true, scaled_by_layer = false;
  double dropout = 0;
};
[[nodiscard]] Value causal_shares(Network& net, Value products, Type type, const Value& mask,
                                  const CausalShares& steps);

// Rotates the first `turned` numbers of each head and keeps the others.
[[nodiscard]] Value partly_turned(Network& net, const Value& x, std::int64_t head_width,
                                  std::int64_t turned, const Network::Rotation& by);

}  // namespace headroom::forecast::detail
