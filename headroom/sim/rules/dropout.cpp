// at::dropout runs one fused operator on CUDA, and here; the CPU draws noise and multiplies.
#include "headroom/sim/device/generator.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

// Source: aten/src/ATen/native/cuda/Dropout.cu, aten/src/ATen/native/Dropout.cpp.
ScalarType mask_type(const Tensor& x) {
  return follows_cuda() ? at::kBool : x.scalar_type();
}

Two native_dropout(const Tensor& x, double, std::optional<bool>) {
  Tensor mask = like(x, mask_type(x));
  Tensor out = like(x);
  return {out, mask};
}

// The CPU's numbers: it draws noise of 0 and 1/(1-p) in the input's type.
Two fill_dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true) || x.numel() == 0)
    return {x.clone(), at::ones_like(x, x.options().dtype(mask_type(x)))};
  if (p == 1)
    return {x.mul(at::zeros({}, x.options())), at::zeros_like(x, x.options().dtype(mask_type(x)))};
  Tensor noise = at::empty_like(x);
  noise.bernoulli_(1 - p, detail::on_cpu(detail::running.card->generator()));
  Tensor mask = noise.to(mask_type(x), /*non_blocking=*/false, /*copy=*/true);
  noise.div_(1 - p);
  return {x * noise, mask};
}

// The scale is 1/(1-p), or 0 if no element was kept.
Tensor fill_dropout_backward(const Tensor& gradient, const Tensor& mask, double scale) {
  Tensor noise = mask.to(gradient.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  if (scale != 0 && scale != 1) noise.div_(1 / scale);
  return gradient * noise;
}

}  // namespace

void add_dropout(Table& table) {
  table.rule("native_dropout", native_dropout);
  table.fill("native_dropout", fill_dropout);
  table.rule("native_dropout_backward", [](const Tensor& gradient, const Tensor&, double) {
    return in_format(gradient.sizes(), gradient, gradient.suggest_memory_format());
  });
  table.fill("native_dropout_backward", fill_dropout_backward);
}

}  // namespace headroom::sim::rules
