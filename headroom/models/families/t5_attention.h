// T5's norm and attention (T5LayerNorm and T5Attention of transformers' modeling_t5.py).
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
  Attention attention = Attention::sdpa;
  Transformers transformers = Transformers::v5;
  Tensor mask;          // of the stack's own tokens
  Tensor encoder_mask;  // of the encoder's tokens
  Tensor positions;     // transformers' cache_position, [length]
  Cache* cache = nullptr;
  bool checkpointed = false;  // if so, T5 makes a bias of zeros require a gradient
};

// The first layer makes the bias from relative positions, in 4.57 with the mask, and passes it on
// to the later layers. 4.57 has only the eager form.
class T5Attention : public torch::nn::Module {
 public:
  enum class Kind { encoder, decoder, cross };
  T5Attention(const T5Shape& shape, Kind kind, bool first);

  // `states` attend to `others` (to themselves, except in cross attention). Makes an undefined
  // `bias`. Returns the result, the bias, and in the newest version's eager form the weights.
  nn::Tensors operator()(const Tensor& states, const Tensor& others, Tensor bias,
                         const T5LayerInputs& with) const;

 private:
  struct Heads {
    Tensor q, k, v;
  };
  Tensor first_bias(const Heads& heads, const T5LayerInputs& with) const;
  Tensor masked_bias(const Tensor& bias, const Tensor& mask) const;
  nn::Tensors attended(const Heads& heads, const Tensor& bias, const T5LayerInputs& with) const;
  nn::Tensors eager(const Heads& heads, const Tensor& bias, const Tensor& mask) const;
  Tensor older_eager(const Heads& heads, Tensor& bias, const T5LayerInputs& with) const;
  const Tensor& mask_of(const T5LayerInputs& with) const {
    return kind_ == Kind::cross ? with.encoder_mask : with.mask;
  }
  Tensor relative_bias(std::int64_t length, const Tensor& positions) const;
  Tensor buckets_of(Tensor distances) const;

  const T5Shape shape_;
  const Kind kind_;
  const std::shared_ptr<nn::Linear> q_, k_, v_, out_;
  std::shared_ptr<nn::Embedding> relative_;  // only in the first layer's self-attention
};

}  // namespace headroom::models::detail
