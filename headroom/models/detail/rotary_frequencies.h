// How far each pair of a head's numbers rotates per token (modeling_rope_utils.py of
// transformers).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headroom/model/rope.h"

namespace headroom::models::detail {

// [width / 2]. `length` is that of the text; 0 means any length that the model was trained for.
// Only dynamic and longrope use it.
[[nodiscard]] at::Tensor rotary_frequencies(const model::Rope& rope, std::int64_t length,
                                            const at::TensorOptions& where);

}  // namespace headroom::models::detail
