// Rotary position embeddings (modeling_rope_utils.py and modeling_llama.py of transformers).
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <utility>

#include "headroom/model/rope.h"
#include "headroom/models/detail/rotary_frequencies.h"
#include "headroom/models/model.h"

namespace headroom::models::detail {

struct CosSin {
  at::Tensor cos, sin;  // [1, length, width]
};

class Rotary : public torch::nn::Module {
 public:
  Rotary(model::Rope rope, Transformers transformers);

  // `positions`: [1, length], starting at 0. Computes in float, under autocast too; the result is
  // of the hidden states' `type`.
  [[nodiscard]] CosSin operator()(const at::Tensor& positions, at::ScalarType type);

 private:
  [[nodiscard]] at::Tensor frequencies_for(std::int64_t length);

  const model::Rope rope_;
  at::Tensor inverse_frequencies_;
  std::int64_t longest_;  // the length that the dynamic kind's frequencies are for
};

// Rotates queries or keys [batch, heads, length, width].
[[nodiscard]] at::Tensor rotated(const at::Tensor& states, const CosSin& by);

// Rotates only the first part of each head. Returns a copy, even if that part is the whole head.
[[nodiscard]] at::Tensor partly_turned(const at::Tensor& states, const CosSin& by);

}  // namespace headroom::models::detail
