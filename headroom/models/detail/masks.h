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

}  // namespace headroom::models::detail
