// The rotation of each pair of a head's numbers per token, and the kinds of `rope_scaling` that
// extend models to longer texts (modeling_rope_utils.py of transformers 4.57.6).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headroom/model/model_config.h"

namespace headroom::models::detail {

enum class RotaryKind { plain, linear, dynamic, yarn, longrope, llama3 };

struct RotaryFrequencies {
  at::Tensor inverse;  // [width / 2]
  double scaling = 1;  // of cosines and sines
};

// Throws InputError for a `rope_scaling` that transformers does not know.
[[nodiscard]] RotaryKind rotary_kind(const model::ModelConfig& config);

// The text length up to which longrope uses its short factors.
[[nodiscard]] std::int64_t longrope_length(const model::ModelConfig& config);

// `width` is that of the rotated part of a head. `length` is that of the text; 0 means any length
// that the model was trained for. Only dynamic and longrope use it. Throws InputError for a
// `rope_scaling` that lacks a number or has a wrong one.
[[nodiscard]] RotaryFrequencies rotary_frequencies(RotaryKind kind,
                                                   const model::ModelConfig& config,
                                                   std::int64_t width, std::int64_t length,
                                                   const at::TensorOptions& where);

}  // namespace headroom::models::detail
