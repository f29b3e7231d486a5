// Experts as transformers 5 keeps and runs them (integrations/moe.py of 5.23.0): the weights of all
// in two tensors, and one grouped product for all tokens, sorted by expert.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "headroom/nn/activation.h"

namespace headroom::nn {

class StackedExperts : public torch::nn::Module {
 public:
  StackedExperts(std::int64_t experts, std::int64_t width, std::int64_t inner,
                 Activation activation);

  // Each token's sum over its experts. `states` is [tokens, width]; `chosen` and `shares`, both
  // [tokens, experts a token], say which experts a token goes to, and with which weight.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& states, const at::Tensor& chosen,
                                      const at::Tensor& shares) const;

  // Views of the weights, or of two other tensors of their sizes, under the names that they have in
  // checkpoints: "3.w1.weight".
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> by_expert(
      const at::Tensor& gate_up, const at::Tensor& down) const;

  [[nodiscard]] const at::Tensor& gate_up() const { return gate_up_; }
  [[nodiscard]] const at::Tensor& down() const { return down_; }

 private:
  [[nodiscard]] at::Tensor through_experts(const at::Tensor& sorted, const at::Tensor& ends) const;

  const std::int64_t experts_, inner_;
  const Activation activation_;
  const at::Tensor gate_up_;  // [experts, 2 * inner, width]: the gate's rows, then those of `up`
  const at::Tensor down_;     // [experts, width, inner]
};

// How many of `numbers` are 0, 1, ... `count` - 1. transformers avoids bincount, which waits for
// the card.
[[nodiscard]] at::Tensor counted(const at::Tensor& numbers, std::int64_t count);

}  // namespace headroom::nn
