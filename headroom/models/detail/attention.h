// Attention as transformers computes it: with scaled_dot_product_attention
// (integrations/sdpa_attention.py of 4.57.6), or as matrix products with a softmax between (eager).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/models/model.h"

namespace headroom::models::detail {

struct AttentionOptions {
  double dropout = 0;  // 0 when the model is not training
  std::optional<double> scaling = {};
  // Query heads per key head; empty if the module has no num_key_value_groups.
  std::optional<std::int64_t> groups = {};
  // Empty: causal if there is no mask, more than one query, and `module_is_causal`.
  std::optional<bool> is_causal = {};
  bool module_is_causal = true;
  double softcap = 0;  // Gemma-2's, eager form only; 0: none
};

// Queries, keys and values are [batch, heads, length, width]. The result is [batch, length, heads,
// width], contiguous.
[[nodiscard]] at::Tensor sdpa(const at::Tensor& q, at::Tensor k, at::Tensor v, at::Tensor mask,
                              const AttentionOptions& options);

// Llama's eager_attention_forward, which most decoders share: it computes the softmax in float.
[[nodiscard]] at::Tensor eager(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& mask, const AttentionOptions& options);

[[nodiscard]] at::Tensor attend(Attention kind, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const at::Tensor& mask,
                                const AttentionOptions& options);

// transformers' functions return the weights with the result, and layers hold the weights until
// they return.
struct Attended {
  at::Tensor out;      // [batch, length, heads, width]
  at::Tensor weights;  // [batch, heads, length, length]; undefined in the sdpa form
};
[[nodiscard]] Attended attended(Attention kind, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const at::Tensor& mask,
                                const AttentionOptions& options);

// Repeats each key and value head `times` times, once per query head that uses it; copies if
// `times` is more than 1.
[[nodiscard]] at::Tensor repeated(const at::Tensor& states, std::int64_t times);

}  // namespace headroom::models::detail
