// Rotary position embeddings (modeling_rope_utils.py and modeling_llama.py of transformers 4.57.6).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <utility>

#include "headroom/model/model_config.h"
#include "headroom/models/detail/rotary_frequencies.h"

namespace headroom::models::detail {

struct CosSin {
  at::Tensor cos, sin;  // [1, length, width]
};

class Rotary : public torch::nn::Module {
 public:
  // `width` is that of a head, or of its rotated part. Throws InputError for an odd width, and for
  // a `rope_scaling` that transformers does not know.
  Rotary(const model::ModelConfig& config, std::int64_t width);

  // `positions`: [1, length], starting at 0. Computes in float, under autocast too; the result is
  // of the hidden states' `type`.
  [[nodiscard]] CosSin operator()(const at::Tensor& positions, at::ScalarType type);

 private:
  [[nodiscard]] at::Tensor frequencies_for(std::int64_t length);

  const model::ModelConfig config_;
  const std::int64_t width_;
  const RotaryKind kind_;
  double scaling_ = 1;  // of cosines and sines
  at::Tensor inverse_frequencies_;
  std::int64_t most_;     // the most positions that the model has
  std::int64_t longest_;  // the length that the dynamic kind's frequencies are for
};

// Rotates queries or keys [batch, heads, length, width].
[[nodiscard]] at::Tensor turned(const at::Tensor& states, const CosSin& by);

// Rotates only the first part of each head. Returns a copy, even if that part is the whole head.
[[nodiscard]] at::Tensor partly_turned(const at::Tensor& states, const CosSin& by);

}  // namespace headroom::models::detail
