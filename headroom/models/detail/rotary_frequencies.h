// How fast each pair of a head's numbers turns from token to token, and the kinds of `rope_scaling`
// by which models are stretched to longer texts (modeling_rope_utils.py of transformers 4.57.6).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headroom/formula/model_config.h"

namespace headroom::models::detail {

enum class RotaryKind { plain, linear, dynamic, yarn, longrope, llama3 };

struct RotaryFrequencies {
  at::Tensor inverse;  // [width / 2]
  double scaling = 1;  // of cosines and sines
};

// Throws InputError for a `rope_scaling` that transformers does not know.
[[nodiscard]] RotaryKind rotary_kind(const formula::ModelConfig& config);

// How long the texts are for which longrope takes its short factors.
[[nodiscard]] std::int64_t longrope_length(const formula::ModelConfig& config);

// `width`: of the part of a head that is turned. `length`: of the text; 0: any that the model was
// trained for. Only dynamic and longrope look at it. Throws InputError for a `rope_scaling` that
// lacks a number or has a wrong one.
[[nodiscard]] RotaryFrequencies rotary_frequencies(RotaryKind kind,
                                                   const formula::ModelConfig& config,
                                                   std::int64_t width, std::int64_t length,
                                                   const at::TensorOptions& where);

}  // namespace headroom::models::detail
