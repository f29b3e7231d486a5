// Attention as transformers calls it: through scaled_dot_product_attention
// (integrations/sdpa_attention.py of 4.57.6), or as products with a softmax between.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/models/model.h"

namespace headroom::models::detail {

struct AttentionOptions {
  double dropout = 0;  // 0 when the model is not training
  std::optional<double> scaling = {};
  // Query heads a key has; nothing: the module has no num_key_value_groups.
  std::optional<std::int64_t> groups = {};
  // Nothing: where there is no mask, and more than one query, and the module `is_causal`.
  std::optional<bool> is_causal = {};
  bool module_is_causal = true;
  double softcap = 0;  // Gemma-2's, in the eager form only; 0: none
};

// Queries, keys and values [batch, heads, length, width]; the result [batch, length, heads, width],
// contiguous.
[[nodiscard]] at::Tensor sdpa(const at::Tensor& q, at::Tensor k, at::Tensor v, at::Tensor mask,
                              const AttentionOptions& options);

// Llama's eager_attention_forward, which most decoders share: softmax in float.
[[nodiscard]] at::Tensor eager(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& mask, const AttentionOptions& options);

[[nodiscard]] at::Tensor attend(Attention kind, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const at::Tensor& mask,
                                const AttentionOptions& options);

// transformers' functions give the weights back with the result, and layers hold them until they
// return.
struct Attended {
  at::Tensor out;      // [batch, length, heads, width]
  at::Tensor weights;  // [batch, heads, length, length]; undefined in the sdpa form
};
[[nodiscard]] Attended attended(Attention kind, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const at::Tensor& mask,
                                const AttentionOptions& options);

// Every key and value as often as query heads use it; a copy if that is more than once.
[[nodiscard]] at::Tensor repeated(const at::Tensor& states, std::int64_t times);

}  // namespace headroom::models::detail
