// Rotary position embeddings (modeling_rope_utils.py and modeling_llama.py of transformers 4.57.6).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <utility>

#include "headroom/formula/model_config.h"

namespace headroom::models::detail {

struct CosSin {
  at::Tensor cos, sin;  // [1, length, width]
};

class Rotary : public torch::nn::Module {
 public:
  // `width`: of a head, or of the part of it that is turned. Throws InputError for a `rope_scaling`
  // that transformers does not know.
  Rotary(const formula::ModelConfig& config, std::int64_t width);

  // `positions`: [1, length]; the result in the hidden states' type.
  [[nodiscard]] CosSin operator()(const at::Tensor& positions, at::ScalarType type) const;

 private:
  at::Tensor inverse_frequencies_;
  double scaling_ = 1;  // of cosines and sines
};

// Queries or keys [batch, heads, length, width], turned.
[[nodiscard]] at::Tensor turned(const at::Tensor& states, const CosSin& by);

}  // namespace headroom::models::detail
