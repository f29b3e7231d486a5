// The masks that transformers makes for attention (masking_utils.py of 5.23.0). Those of 4.57.6 are
// in older_masks.h; causal_mask() makes either.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headroom/models/model.h"

namespace headroom::models::detail {

struct MaskOptions {
  Attention attention = Attention::sdpa;
  Transformers transformers = Transformers::v5;
  at::ScalarType type = at::kFloat;         // of the hidden states
  std::optional<std::int64_t> window = {};  // how many tokens back a token sees; std::nullopt: all
  bool with_cache = false;                  // keys and values are kept
};

// For a decoder: which token sees which, [batch, 1, length, length]. Undefined if attention can use
// `is_causal` instead. `positions` is [length].
[[nodiscard]] at::Tensor causal_mask(const Batch& batch, const at::Tensor& positions,
                                     const MaskOptions& options);

// For an encoder, and for what a decoder sees of it: [batch, 1, queries, length]. Undefined if
// every token sees all others. `mask` is that of the batch.
[[nodiscard]] at::Tensor bidirectional_mask(const Batch& batch, std::int64_t queries,
                                            const MaskOptions& options);

// The lowest number of a type, which a mask adds where a token must not look.
[[nodiscard]] double lowest(at::ScalarType type);

}  // namespace headroom::models::detail
