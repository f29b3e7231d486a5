#include "headroom/nn/layers.h"

#include <ATen/ATen.h>

#include <utility>

#include "headroom/nn/checkpoint.h"
#include "headroom/nn/detail/absent_weight.h"

namespace headroom::nn {
namespace {

Tensor followed(const After& after, const Tensor& x, Tensor result) {
  return after ? after(x, std::move(result)) : result;
}

// transformers' enable_input_require_grads. Changes nothing on a result that has a grad_fn.
Tensor with_gradient(Tensor result, bool wanted) {
  if (wanted) result.requires_grad_();
  return result;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias)
    : weight(register_parameter("weight", detail::linear_weight({out, in}))) {
  if (with_bias) bias = register_parameter("bias", at::empty({out}));
}

Linear::Linear(Tensor tied) : weight(std::move(tied)) {}

Tensor Linear::operator()(const Tensor& x) const {
  return followed(after, x, at::linear(x, weight, bias));
}

Conv1D::Conv1D(std::int64_t in, std::int64_t out)
    : weight(register_parameter("weight", detail::linear_weight({in, out}))),
      bias(register_parameter("bias", at::empty({out}))) {}

Tensor Conv1D::operator()(const Tensor& x) const {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  const Tensor flat = at::addmm(bias, x.view({-1, x.size(-1)}), weight);
  return followed(after, x, flat.view(sizes));
}

Embedding::Embedding(std::int64_t rows, std::int64_t width, std::int64_t padding)
    : weight(register_parameter("weight", at::empty({rows, width}))), padding_(padding) {}

Tensor Embedding::operator()(const Tensor& indices) const {
  return with_gradient(at::embedding(weight, indices, padding_), result_needs_gradient);
}

LayerNorm::LayerNorm(std::int64_t width, double epsilon, bool affine)
    : width_(width), epsilon_(epsilon) {
  if (!affine) return;
  weight = register_parameter("weight", at::empty({width}));
  bias = register_parameter("bias", at::empty({width}));
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  return at::layer_norm(x, {width_}, weight, bias, epsilon_);
}

RmsNorm::RmsNorm(std::int64_t width, double epsilon)
    : weight(register_parameter("weight", at::empty({width}))), epsilon_(epsilon) {}

Tensor RmsNorm::operator()(const Tensor& x) const {
  Tensor states = x.to(at::kFloat);
  Tensor squares = states.pow(2);
  const Tensor variance = squares.mean(-1, true);
  squares.reset();
  Tensor scale = variance + epsilon_;
  scale = at::rsqrt(scale);
  states = states * scale;
  scale.reset();
  return weight * states.to(x.scalar_type());
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, const Options& options)
    : weight(register_parameter(
          "weight", at::empty({out, in / options.groups, options.kernel, options.kernel}))),
      options_(options) {
  if (options.with_bias) bias = register_parameter("bias", at::empty({out}));
}

Tensor Conv2d::operator()(const Tensor& x) const {
  return with_gradient(
      at::conv2d(x, weight, bias, options_.stride, options_.padding, 1, options_.groups),
      result_needs_gradient);
}

BatchNorm2d::BatchNorm2d(std::int64_t channels, double epsilon, double momentum)
    : weight(register_parameter("weight", at::empty({channels}))),
      bias(register_parameter("bias", at::empty({channels}))),
      running_mean(register_buffer("running_mean", at::zeros({channels}))),
      running_var(register_buffer("running_var", at::ones({channels}))),
      num_batches_tracked(
          register_buffer("num_batches_tracked", at::zeros({}, at::dtype(at::kLong)))),
      epsilon_(epsilon),
      momentum_(momentum) {}

Tensor BatchNorm2d::operator()(const Tensor& x) const {
  const bool again = recomputing();
  if (is_training() && !again) num_batches_tracked.add_(1);
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(),
                        again ? 0 : momentum_, epsilon_, true);
}

}  // namespace headroom::nn
