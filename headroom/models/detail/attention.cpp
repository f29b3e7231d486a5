#include "headroom/models/detail/attention.h"

#include <ATen/ATen.h>

namespace headroom::models::detail {

namespace {

// Repeats each key and value head `times` times, once per query head that uses it; copies if
// `times` is more than 1.
Tensor repeated(const Tensor& states, std::int64_t times) {
  if (times == 1) return states;
  const auto batch = states.size(0), heads = states.size(1), length = states.size(2),
             width = states.size(3);
  return states.unsqueeze(2)
      .expand({batch, heads, times, length, width})
      .reshape({batch, heads * times, length, width});
}

}  // namespace

Tensor sdpa(const Tensor& q, Tensor k, Tensor v, Tensor mask, const AttentionOptions& options) {
  bool grouped = false;
  if (options.groups) {
    grouped = !mask.defined();
    if (!grouped) {
      k = repeated(k, *options.groups);
      v = repeated(v, *options.groups);
    }
  }
  if (mask.defined() && mask.dim() == 4) mask = mask.slice(3, 0, k.size(2));
  const bool causal =
      options.is_causal.value_or(q.size(2) > 1 && !mask.defined() && options.module_is_causal);
  const auto kernel = [&](const nn::Tensors& in) -> nn::Tensors {
    std::optional<Tensor> given;
    if (mask.defined()) given = in[3];
    return {at::scaled_dot_product_attention(in[0], in[1], in[2], given, options.dropout, causal,
                                             options.scaling, grouped)};
  };
  const Tensor out = nn::computed_once(kernel, {q, k, v, mask})[0];
  return out.transpose(1, 2).contiguous();
}

namespace {

Attended eager_with_weights(const Tensor& q, const Tensor& keys, const Tensor& values,
                            const Tensor& mask, const AttentionOptions& options) {
  Tensor weights = at::matmul(q, keys.transpose(2, 3));
  weights = weights * *options.scaling;
  if (options.softcap != 0) {
    weights = weights / options.softcap;
    weights = at::tanh(weights);
    weights = weights * options.softcap;
  }
  if (mask.defined()) weights = weights + mask.slice(3, 0, keys.size(2));
  Tensor shares = at::softmax(weights, -1, at::kFloat);
  weights = shares.to(q.scalar_type());
  shares.reset();
  weights = at::dropout(weights, options.dropout, options.dropout > 0);
  const Tensor out = at::matmul(weights, values);
  return {out.transpose(1, 2).contiguous(), weights};
}

}  // namespace

Tensor heads_of(const Tensor& projected, std::int64_t head_width) {
  return projected.view({projected.size(0), projected.size(1), -1, head_width}).transpose(1, 2);
}

Attended attended(Attention kind, const Tensor& q, const Tensor& k, const Tensor& v,
                  const Tensor& mask, const AttentionOptions& options) {
  if (kind == Attention::sdpa) return {sdpa(q, k, v, mask, options), {}};
  const auto eager = [&](const nn::Tensors& in) -> nn::Tensors {
    Attended seen = eager_with_weights(in[0], in[1], in[2], in[3], options);
    return {seen.out, seen.weights};
  };
  const std::int64_t groups = options.groups.value_or(1);
  const nn::Tensors seen =
      nn::computed_once(eager, {q, repeated(k, groups), repeated(v, groups), mask});
  return {seen[0], seen[1]};
}

}  // namespace headroom::models::detail
