// transformers' loss functions (loss/loss_utils.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "headroom/model/model_config.h"
#include "headroom/nn/fused_loss.h"

namespace headroom::models::detail {

// Logits [batch, length, vocabulary] and labels [batch, length]; each position predicts the next.
[[nodiscard]] at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);
// Logits and labels as above, of any length; each position predicts its own label. The logits keep
// their type, as in BERT's and T5's own classes.
[[nodiscard]] at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels);
// The same two in chunks of `tokens` tokens; `head` turns states [batch, length, width] into
// logits.
using Head = std::function<at::Tensor(const at::Tensor& states)>;
[[nodiscard]] at::Tensor chunked_causal_lm_loss(const Head& head, const at::Tensor& states,
                                                const at::Tensor& labels, std::int64_t tokens);
[[nodiscard]] at::Tensor chunked_token_loss(const Head& head, const at::Tensor& states,
                                            const at::Tensor& labels, std::int64_t tokens);
// The same two, fused with the head; in float.
[[nodiscard]] at::Tensor fused_causal_lm_loss(const nn::FusedHead& head, const at::Tensor& states,
                                              const at::Tensor& labels);
[[nodiscard]] at::Tensor fused_token_loss(const nn::FusedHead& head, const at::Tensor& states,
                                          const at::Tensor& labels);
// The loss depends on `problem_type`, or else on the number of labels and their type.
[[nodiscard]] at::Tensor classification_loss(const at::Tensor& logits, const at::Tensor& labels,
                                             const model::ModelConfig& config);

}  // namespace headroom::models::detail
