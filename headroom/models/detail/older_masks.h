// The masks of transformers 4.57.6 (masking_utils.py, and modeling_attn_mask_utils.py for models
// written before it). See masks.h for those of the newest version.
#pragma once

#include "headroom/models/detail/masks.h"

namespace headroom::models::detail {

// causal_mask() of masks.h.
[[nodiscard]] at::Tensor older_causal_mask(const Batch& batch, const at::Tensor& positions,
                                           const MaskOptions& options);

// The same for models that make their own mask (OPT, GPT-Neo): an additive mask in the type of the
// hidden states. It ignores `window` and `with_cache`. If the batch has no mask, it has one key
// more than tokens.
[[nodiscard]] at::Tensor additive_causal_mask(const Batch& batch, const at::Tensor& positions,
                                              const MaskOptions& options);

// The masks of BERT, DistilBERT and T5. One made with a `type` is additive.

// The float mask of ones, [batch, length], that these models make if none is given.
[[nodiscard]] at::Tensor ones_mask(const at::Tensor& tokens);
// For the eager form, from [batch, length] or [batch, 1, length, length].
[[nodiscard]] at::Tensor inverted_mask(const at::Tensor& mask, at::ScalarType type);
// 1 where a token sees another, else 0, in the type of `mask` [batch, length]; for inverted_mask().
[[nodiscard]] at::Tensor decoder_mask(const at::Tensor& mask);
// For the sdpa form; undefined if every token sees all others, or all that come before it.
[[nodiscard]] at::Tensor sdpa_mask(const Batch& batch, at::ScalarType type, bool causal);
// For T5's decoder, [batch, 1, length, length].
[[nodiscard]] at::Tensor t5_causal_mask(const at::Tensor& mask, const at::Tensor& positions,
                                        at::ScalarType type);

}  // namespace headroom::models::detail
