#include "headroom/models/detail/loss.h"

#include <ATen/ATen.h>

#include "headroom/model/tasks.h"
#include "headroom/nn/chunked_loss.h"

namespace headroom::models::detail {
namespace {

using at::Tensor;

constexpr std::int64_t kIgnored = -100;

std::string problem_type(const Tensor& labels, const model::ModelConfig& config) {
  if (std::string said = model::problem_type(config); !said.empty()) return said;
  if (config.labels() == 1) return "regression";
  const bool indices = labels.scalar_type() == at::kLong || labels.scalar_type() == at::kInt;
  return indices ? "single_label_classification" : "multi_label_classification";
}

}  // namespace

Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels) {
  Tensor wide = logits.to(at::kFloat);
  const Tensor padded = at::constant_pad_nd(labels, {0, 1}, kIgnored);
  const Tensor shifted = padded.slice(1, 1).contiguous();
  wide = wide.view({-1, wide.size(-1)});
  return at::cross_entropy_loss(wide, shifted.view(-1), {}, at::Reduction::Mean, kIgnored);
}

Tensor token_loss(const Tensor& logits, const Tensor& labels) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), labels.view(-1), {},
                                at::Reduction::Mean, kIgnored);
}

Tensor chunked_causal_lm_loss(const Head& head, const Tensor& states, const Tensor& labels,
                              std::int64_t tokens) {
  const Tensor padded = at::constant_pad_nd(labels, {0, 1}, kIgnored);
  const Tensor shifted = padded.slice(1, 1).contiguous();
  const auto in_float = [head](const Tensor& x) { return head(x).to(at::kFloat); };
  return nn::chunked_cross_entropy(in_float, states, shifted,
                                   {.tokens = tokens, .ignored = kIgnored});
}

Tensor chunked_token_loss(const Head& head, const Tensor& states, const Tensor& labels,
                          std::int64_t tokens) {
  return nn::chunked_cross_entropy(head, states, labels, {.tokens = tokens, .ignored = kIgnored});
}

Tensor fused_causal_lm_loss(const nn::FusedHead& head, const Tensor& states, const Tensor& labels) {
  const Tensor padded = at::constant_pad_nd(labels, {0, 1}, kIgnored);
  return nn::fused_cross_entropy(head, states, padded.slice(1, 1), {.ignored = kIgnored});
}

Tensor fused_token_loss(const nn::FusedHead& head, const Tensor& states, const Tensor& labels) {
  return nn::fused_cross_entropy(head, states, labels, {.ignored = kIgnored});
}

Tensor classification_loss(const Tensor& logits, const Tensor& labels,
                           const model::ModelConfig& config) {
  const std::string type = problem_type(labels, config);
  if (type == "regression" && config.labels() == 1)
    return at::mse_loss(logits.squeeze(), labels.squeeze());
  if (type == "regression") return at::mse_loss(logits, labels);
  if (type == "multi_label_classification")
    return at::binary_cross_entropy_with_logits(logits, labels);
  return at::cross_entropy_loss(logits.view({-1, config.labels()}), labels.view(-1), {},
                                at::Reduction::Mean, kIgnored);
}

}  // namespace headroom::models::detail
