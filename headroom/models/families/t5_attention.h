// T5's norm and attention (T5LayerNorm and T5Attention of modeling_t5.py, transformers 4.57.6).
#pragma once

#include <cstdint>
#include <memory>

#include "headroom/model/shapes.h"
#include "headroom/models/detail/family.h"

namespace headroom::models::detail {

using model::T5Shape;

// An RmsNorm that scales the input itself, not its float copy.
class T5Norm : public torch::nn::Module {
 public:
  explicit T5Norm(const T5Shape& shape);
  Tensor operator()(const Tensor& x) const;

  Tensor weight;

 private:
  const double epsilon_;
};

// A layer's inputs besides tensors that need gradients.
struct T5LayerInputs {
  Tensor mask;          // of the stack's own tokens
  Tensor encoder_mask;  // of the encoder's tokens
  Tensor positions;     // transformers' cache_position, [length]
  Cache* cache = nullptr;
  bool checkpointed = false;  // if so, T5 makes a bias of zeros require a gradient
};

// Eager attention, the only form that transformers has for T5. The first layer makes the bias from
// relative positions and mask, and passes it on to the later layers.
class T5Attention : public torch::nn::Module {
 public:
  enum class Kind { encoder, decoder, cross };
  T5Attention(const T5Shape& shape, Kind kind, bool first);

  // `states` attend to `others` (to themselves, except in cross attention). Makes an undefined
  // `bias`.
  nn::Tensors operator()(const Tensor& states, const Tensor& others, Tensor bias,
                         const T5LayerInputs& with) const;

 private:
  Tensor first_bias(const Tensor& scores, const T5LayerInputs& with) const;
  Tensor relative_bias(std::int64_t length, const Tensor& positions) const;
  Tensor buckets_of(Tensor distances) const;

  const T5Shape shape_;
  const Kind kind_;
  const std::shared_ptr<nn::Linear> q_, k_, v_, out_;
  std::shared_ptr<nn::Embedding> relative_;  // only in the first layer's self-attention
};

}  // namespace headroom::models::detail
