#include "headroom/optim/clip.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>

#include "headroom/base/error.h"
#include "headroom/optim/detail/groups.h"

namespace headroom::optim {
namespace {

using at::Tensor;
using detail::Tensors;

Tensor norm_of_all(const Tensors& gradients, const ClipOptions& options) {
  if (gradients.empty()) return at::zeros({}, at::kFloat);
  Tensors norms;
  for (const detail::Indices& indices : detail::by_device_and_type(gradients)) {
    const Tensors group = detail::select(gradients, indices);
    Tensors of_group;
    if (options.foreach)
      of_group = at::_foreach_norm(group, options.order);
    else
      for (const Tensor& gradient : group)
        of_group.push_back(at::linalg_vector_norm(gradient, options.order));
    norms.insert(norms.end(), of_group.begin(), of_group.end());
  }
  Tensors together;
  for (const Tensor& norm : norms)
    together.push_back(norm.to(at::TensorOptions(gradients[0].device())));
  return at::linalg_vector_norm(at::stack(together), options.order);
}

void scale(const Tensors& gradients, double max_norm, const Tensor& norm, bool foreach) {
  const Tensor factor = (norm + 1e-6).reciprocal() * max_norm;
  const Tensor at_most_one = at::clamp(factor, c10::nullopt, 1.0);
  for (const detail::Indices& indices : detail::by_device_and_type(gradients)) {
    const Tensors group = detail::select(gradients, indices);
    const Tensor here = at_most_one.to(at::TensorOptions(group[0].device()));
    if (foreach)
      at::_foreach_mul_(group, here);
    else
      for (const Tensor& gradient : group) gradient.mul_(here);
  }
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

void clip_to_norm(const std::vector<Tensor>& parameters, double max_norm, const Tensor& norm,
                  const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  const Tensors gradients = gradients_of(parameters);
  if (!gradients.empty()) scale(gradients, max_norm, norm, options.foreach);
}

Tensor clip_gradients(const std::vector<Tensor>& parameters, double max_norm,
                      const ClipOptions& options) {
  if (!(max_norm >= 0) || std::isnan(options.order))
    throw UsageError(
        expectation("clip_gradients", "a norm of 0 or more, and its order",
                    std::to_string(max_norm) + " and order " + std::to_string(options.order)));
  const at::NoGradGuard no_grad;
  const Tensors gradients = gradients_of(parameters);
  Tensor norm = norm_of_all(gradients, options);
  if (options.refuse_non_finite && at::logical_or(norm.isnan(), norm.isinf()).item<bool>())
    throw InputError(expectation("clip_gradients", "a finite norm of the gradients",
                                 std::to_string(norm.item<double>())));
  if (!gradients.empty()) scale(gradients, max_norm, norm, options.foreach);
  return norm;
}

Tensor gradient_norm(const std::vector<Tensor>& parameters, const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  return norm_of_all(gradients_of(parameters), options);
}

void clip_gradients_by_value(const std::vector<Tensor>& parameters, double limit, bool foreach) {
  if (!(limit > 0))
    throw UsageError(
        expectation("clip_gradients_by_value", "a limit above 0", std::to_string(limit)));
  const at::NoGradGuard no_grad;
  const Tensors gradients = gradients_of(parameters);
  for (const detail::Indices& indices : detail::by_device_and_type(gradients)) {
    const Tensors group = detail::select(gradients, indices);
    if (foreach) {
      at::_foreach_clamp_min_(group, -limit);
      at::_foreach_clamp_max_(group, limit);
    } else {
      for (const Tensor& gradient : group) gradient.clamp_(-limit, limit);
    }
  }
}

}  // namespace headroom::optim
