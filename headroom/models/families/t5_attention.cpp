// Python frees a temporary after the operation that used it, and a function's variables when the
// function returns. This code does the same.
#include "headroom/models/families/t5_attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "headroom/models/detail/attention.h"

namespace headroom::models::detail {

using model::ModelConfig;
using nn::Linear;

T5Norm::T5Norm(const T5Shape& shape)
    : weight(register_parameter("weight", at::empty({shape.width}))), epsilon_(shape.epsilon) {}

Tensor T5Norm::operator()(const Tensor& x) const {
  Tensor variance = x.to(at::kFloat);
  variance = variance.pow(2);
  variance = variance.mean(-1, true);
  Tensor scale = variance + epsilon_;
  scale = at::rsqrt(scale);
  Tensor states = x * scale;
  scale.reset();
  if (at::isReducedFloatingType(weight.scalar_type())) states = states.to(weight.scalar_type());
  return weight * states;
}

T5Attention::T5Attention(const T5Shape& shape, Kind kind, bool first)
    : shape_(shape),
      kind_(kind),
      q_(child<Linear>(*this, "q", shape.width, shape.heads * shape.head_width, false)),
      k_(child<Linear>(*this, "k", shape.width, shape.heads * shape.head_width, false)),
      v_(child<Linear>(*this, "v", shape.width, shape.heads * shape.head_width, false)),
      out_(child<Linear>(*this, "o", shape.heads * shape.head_width, shape.width, false)) {
  if (first && kind != Kind::cross)
    relative_ = child<nn::Embedding>(*this, "relative_attention_bias", shape.buckets, shape.heads);
}

nn::Tensors T5Attention::operator()(const Tensor& states, const Tensor& others, Tensor bias,
                                    const T5LayerInputs& with) const {
  Heads heads{heads_of((*q_)(states), shape_.head_width), (*k_)(others), (*v_)(others)};
  heads.k = heads_of(heads.k, shape_.head_width);
  heads.v = heads_of(heads.v, shape_.head_width);
  keep(with.cache, heads.k, heads.v);
  nn::Tensors result;
  if (with.transformers == Transformers::v5) {
    if (!bias.defined()) bias = first_bias(heads, with);
    result = attended(heads, bias, with);
  } else {
    result = {older_eager(heads, bias, with)};
  }
  Tensor& out = result[0];
  out = out.view({states.size(0), -1, shape_.heads * shape_.head_width});
  out = (*out_)(out);
  result.insert(result.begin() + 1, bias);
  return result;
}

nn::Tensors T5Attention::attended(const Heads& heads, const Tensor& bias,
                                  const T5LayerInputs& with) const {
  if (with.attention == Attention::eager) return eager(heads, bias, mask_of(with));
  AttentionOptions options;
  options.dropout = is_training() ? shape_.dropout : 0;
  options.scaling = 1;
  options.is_causal = false;
  return {sdpa(heads.q, heads.k, heads.v, masked_bias(bias, mask_of(with)), options)};
}

// The bias, and the lowest number where a token must not look: made again in every layer.
Tensor T5Attention::masked_bias(const Tensor& bias, const Tensor& mask) const {
  Tensor seen = mask;
  if (!seen.defined() && kind_ == Kind::decoder) {
    const at::TensorOptions whole = bias.options().dtype(at::kLong).requires_grad(false);
    const Tensor queries = at::arange(bias.size(2), whole), keys = at::arange(bias.size(3), whole);
    seen = queries.unsqueeze(1) >= keys.unsqueeze(0);
  }
  if (!seen.defined()) return bias.contiguous();
  return at::where(seen, bias, lowest(bias.scalar_type())).contiguous();
}

nn::Tensors T5Attention::eager(const Heads& heads, const Tensor& bias, const Tensor& mask) const {
  Tensor weights = at::matmul(heads.q, heads.k.transpose(3, 2));
  weights = weights * 1.0;
  weights = weights + bias;
  if (mask.defined()) weights = weights + mask;
  weights = at::softmax(weights, -1);
  weights = at::dropout(weights, shape_.dropout, is_training());
  const Tensor out = at::matmul(weights, heads.v);
  return {out.transpose(1, 2).contiguous(), weights};
}

Tensor T5Attention::older_eager(const Heads& heads, Tensor& bias, const T5LayerInputs& with) const {
  Tensor scores = at::matmul(heads.q, heads.k.transpose(3, 2));
  if (!bias.defined()) bias = first_bias(heads, with) + mask_of(with).slice(3, 0, heads.k.size(2));
  scores += bias;
  Tensor shares = scores.to(at::kFloat);
  shares = at::softmax(shares, -1);
  shares = shares.to(scores.scalar_type());
  shares = at::dropout(shares, shape_.dropout, is_training());
  const Tensor out = at::matmul(shares, heads.v);
  return out.transpose(1, 2).contiguous();
}

Tensor T5Attention::first_bias(const Heads& heads, const T5LayerInputs& with) const {
  const std::int64_t length = heads.q.size(2), keys = heads.k.size(2);
  if (relative_) return relative_bias(keys, with.positions);
  Tensor bias = at::zeros({1, shape_.heads, length, keys}, heads.q.options().requires_grad(false));
  if (with.checkpointed) bias.set_requires_grad(true);
  return bias;
}

Tensor T5Attention::relative_bias(std::int64_t length, const Tensor& positions) const {
  const Tensor from = positions.unsqueeze(1);
  const Tensor to = at::arange(length, positions.options()).unsqueeze(0);
  const Tensor distances = to - from;
  const Tensor buckets = buckets_of(distances);
  const Tensor values = (*relative_)(buckets);
  return values.permute({2, 0, 1}).unsqueeze(0);
}

// Short distances get a bucket each; longer ones share buckets of growing range.
Tensor T5Attention::buckets_of(Tensor distances) const {
  std::int64_t count = shape_.buckets;
  Tensor buckets;
  if (kind_ == Kind::encoder) {  // half the buckets for each direction
    count /= 2;
    buckets = distances > 0;
    buckets = buckets.to(at::kLong);
    buckets = buckets * count;
    buckets = buckets + 0;
    distances = at::abs(distances);
  } else {
    Tensor before = at::zeros_like(distances);
    before = at::min(distances, before);
    distances = -before;
  }
  const std::int64_t exact = count / 2;
  const Tensor near = distances < exact;
  const double stretch =
      std::log(static_cast<double>(shape_.farthest) / static_cast<double>(exact));
  Tensor far = distances.to(at::kFloat);
  far = far / exact;
  far = at::log(far);
  far = far / stretch;
  far = far * (count - exact);
  far = far.to(at::kLong);
  far = far + exact;
  far = at::min(far, at::full_like(far, count - 1));
  const Tensor chosen = at::where(near, distances, far);
  return buckets.defined() ? buckets.add_(chosen) : chosen + 0;
}

}  // namespace headroom::models::detail
