// The masks that transformers makes for attention (masking_utils.py of 4.57.6).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/models/model.h"

namespace headroom::models::detail {

struct MaskOptions {
  Attention attention = Attention::sdpa;
  at::ScalarType type = at::kFloat;         // of the hidden states
  std::optional<std::int64_t> window = {};  // how many tokens back a token sees; empty: all
  bool with_cache = false;                  // keys and values are kept
};

// For a decoder: which token sees which. Undefined if attention can use `is_causal` instead.
// `positions` is transformers' cache_position, [length].
[[nodiscard]] at::Tensor causal_mask(const Batch& batch, const at::Tensor& positions,
                                     const MaskOptions& options);

// The same for models that make their own mask (OPT, GPT-Neo): an additive mask in the type of the
// hidden states. It ignores `window` and `with_cache`. If the batch has no mask, it has one key
// more than tokens.
[[nodiscard]] at::Tensor additive_causal_mask(const Batch& batch, const at::Tensor& positions,
                                              const MaskOptions& options);

// The masks of models written before masking_utils.py (modeling_attn_mask_utils.py and
// modeling_utils.py of 4.57.6): BERT, DistilBERT, T5. A mask made with a `type` is additive.

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

// The lowest number of a type, which a mask adds where a token must not look.
[[nodiscard]] double lowest(at::ScalarType type);

}  // namespace headroom::models::detail
