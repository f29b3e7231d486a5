// Experts as transformers 5 keeps and runs them (integrations/moe.py of 5.23.0): the weights of all
// in two tensors, and one grouped product for all tokens, sorted by expert.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

class StackedExperts : public torch::nn::Module {
 public:
  StackedExperts(std::int64_t experts, std::int64_t width, std::int64_t inner,
                 nn::Activation activation);

  // Each token's sum over its experts. `states` is [tokens, width]; `chosen` and `shares`, both
  // [tokens, experts a token], say which experts a token goes to, and with which weight.
  [[nodiscard]] Tensor operator()(const Tensor& states, const Tensor& chosen,
                                  const Tensor& shares) const;

  // Views of the weights under the names that they have in checkpoints: "3.w1.weight".
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> by_expert() const;

 private:
  [[nodiscard]] Tensor through_experts(const Tensor& sorted, const Tensor& ends) const;

  const std::int64_t experts_, inner_;
  const nn::Activation activation_;
  const Tensor gate_up_;  // [experts, 2 * inner, width]: the gate's rows, then those of `up`
  const Tensor down_;     // [experts, width, inner]
};

// How many of `numbers` are 0, 1, ... `count` - 1. transformers avoids bincount, which waits for
// the card.
[[nodiscard]] Tensor counted(const Tensor& numbers, std::int64_t count);

}  // namespace headroom::models::detail
