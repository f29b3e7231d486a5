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
  std::optional<std::int64_t> window = {};  // how many tokens back a token sees; nothing: all
  bool with_cache = false;                  // keys and values are kept
};

// For a decoder: which token sees which. Undefined where attention can be told `is_causal` instead.
// `positions`: what cache_position is in transformers, [length].
[[nodiscard]] at::Tensor causal_mask(const Batch& batch, const at::Tensor& positions,
                                     const MaskOptions& options);

// The same for models that make their own (OPT, GPT-Neo): numbers to add, in the type of the hidden
// states; `window` and `with_cache` are not used. Without a mask there is one key more than tokens.
[[nodiscard]] at::Tensor additive_causal_mask(const Batch& batch, const at::Tensor& positions,
                                              const MaskOptions& options);

// The masks of models written before masking_utils.py (modeling_attn_mask_utils.py and
// modeling_utils.py of 4.57.6): BERT, DistilBERT, T5. All are numbers to add, of a type.

// Where no mask is given these models make one of ones, in float: [batch, length].
[[nodiscard]] at::Tensor ones_mask(const at::Tensor& tokens);
// The eager form's, from [batch, length] or [batch, 1, length, length].
[[nodiscard]] at::Tensor inverted_mask(const at::Tensor& mask, at::ScalarType type);
// Which token sees which, in the type of `mask` [batch, length]: 1 or 0; to be inverted.
[[nodiscard]] at::Tensor decoder_mask(const at::Tensor& mask);
// The sdpa form's; undefined where every token sees all others, or all that come before it.
[[nodiscard]] at::Tensor sdpa_mask(const Batch& batch, at::ScalarType type, bool causal);
// T5's decoder's, [batch, 1, length, length].
[[nodiscard]] at::Tensor t5_causal_mask(const at::Tensor& mask, const at::Tensor& positions,
                                        at::ScalarType type);

// The lowest number of a type: what a mask adds where a token must not look.
[[nodiscard]] double lowest(at::ScalarType type);

}  // namespace headroom::models::detail
