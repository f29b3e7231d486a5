// Layer, RMS and group norm.
#include <ATen/native/layer_norm.h>

#include "headroom/gpu/reduction.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/norm_statistics.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

using Wanted = std::array<bool, 3>;

// ---- Layer norm ----

// One number per normalised row: the other dimensions are 1.
Sizes rows_of(const Tensor& x, std::size_t normalised) {
  return with_last(x.sizes(), Sizes(normalised, 1));
}

// Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu, layer_norm_cuda;
// aten/src/ATen/native/layer_norm.cpp, layer_norm_cpu.
Three layer_norm(const Tensor& x, IntArrayRef shape, const Optional& weight, const Optional& bias,
                 double) {
  at::native::_check_layer_norm_inputs(x, shape, or_none(weight), or_none(bias));
  const Sizes rows = rows_of(x, shape.size());
  const ScalarType type = statistics_type(x, {weight, bias});
  const Tensor input = as_contiguous(x);
  Tensor out = contiguous(x);
  Tensor mean = contiguous(rows, x, type);
  Tensor rstd = contiguous(rows, x, type);
  return {out, mean, rstd};
}

Three fill_layer_norm(const Tensor& x, IntArrayRef shape, const Optional& weight,
                      const Optional& bias, double eps) {
  auto [out, mean, rstd] = at::native_layer_norm(x, shape, weight, bias, eps);
  const ScalarType type = statistics_type(x, {weight, bias});
  return {out, as_type(mean, type), as_type(rstd, type)};
}

// CUDA sums the parameters' gradients of more than 65536 short rows in two passes. Source:
// aten/src/ATen/native/cuda/layer_norm_kernel.cu, LaunchGammaBetaBackwardCUDAKernel.
std::int64_t partial_rows(std::int64_t rows, std::int64_t columns) {
  if (!follows_cuda()) return 0;
  return gpu::layer_norm_partial_rows(rows, columns, running_profile());
}

Three layer_norm_backward(const Tensor& gradient, const Tensor& x, IntArrayRef shape,
                          const Tensor& mean, const Tensor&, const Optional& weight,
                          const Optional& bias, Wanted wanted) {
  const Tensor input = as_contiguous(x);
  const Tensor by_row = as_contiguous(gradient);
  Tensor for_x = wanted[0] ? contiguous(x) : Tensor();
  Tensor for_weight = contiguous_if(wanted[1], weight);
  Tensor for_bias = contiguous_if(wanted[2], bias);
  const std::int64_t columns = c10::multiply_integers(shape);
  if (const std::int64_t partial = partial_rows(mean.numel(), columns); partial > 0) {
    const Tensor one = wanted[1] ? contiguous({partial, columns}, *weight) : Tensor();
    const Tensor other = wanted[2] ? contiguous({partial, columns}, *bias) : Tensor();
    // Their sums are new tensors, which replace the first ones.
    if (wanted[1]) for_weight = contiguous(*weight);
    if (wanted[2]) for_bias = contiguous(*bias);
  }
  return {for_x, for_weight, for_bias};
}

Three fill_layer_norm_backward(const Tensor& gradient, const Tensor& x, IntArrayRef shape,
                               const Tensor& mean, const Tensor& rstd, const Optional& weight,
                               const Optional& bias, Wanted wanted) {
  const ScalarType type = statistics_type_on_cpu(x, {weight, bias});
  return at::native_layer_norm_backward(gradient, x, shape, as_type(mean, type),
                                        as_type(rstd, type), weight, bias, wanted);
}

void add_layer_norm(Table& table) {
  table.rule("native_layer_norm", layer_norm);
  table.fill("native_layer_norm", fill_layer_norm);
  table.rule("native_layer_norm_backward", layer_norm_backward);
  table.fill("native_layer_norm_backward", fill_layer_norm_backward);
}

// ---- RMS norm ----

// The CPU composes it of other operators, and autograd follows them.
Tensor composed_rms_norm(const Tensor& x, IntArrayRef shape, const Optional& weight,
                         std::optional<double> eps, Tensor* reciprocal) {
  Sizes dims;
  for (std::size_t i = 0; i < shape.size(); ++i)
    dims.push_back(x.dim() - static_cast<std::int64_t>(i) - 1);
  const ScalarType type = accumulation_type(x.scalar_type());
  const double least = type == at::kDouble ? std::numeric_limits<double>::epsilon()
                                           : double{std::numeric_limits<float>::epsilon()};
  const Tensor wide = x.to(type);
  *reciprocal = at::rsqrt(at::pow(wide, 2).mean(dims, true).add_(eps.value_or(least)));
  Tensor out = wide.mul(*reciprocal);
  if (weight.has_value()) out = out.mul(*weight);
  return out.contiguous().type_as(x);
}

Two rms_norm(const Tensor& x, IntArrayRef shape, const Optional& weight, std::optional<double>) {
  at::native::_check_layer_norm_inputs(x, shape, or_none(weight), {});
  const Tensor input = as_contiguous(x);
  Tensor out = contiguous(x);
  Tensor rstd = contiguous(rows_of(x, shape.size()), x, accumulation_type(x.scalar_type()));
  return {out, rstd};
}

Two fill_rms_norm(const Tensor& x, IntArrayRef shape, const Optional& weight,
                  std::optional<double> eps) {
  Tensor rstd;
  Tensor out = composed_rms_norm(x, shape, weight, eps, &rstd);
  return {out, rstd.contiguous()};
}

Two rms_norm_backward(const Tensor& gradient, const Tensor& x, IntArrayRef shape,
                      const Tensor& rstd, const Optional& weight, std::array<bool, 2> wanted) {
  const auto [for_x, for_weight, none] = layer_norm_backward(gradient, x, shape, rstd, rstd, weight,
                                                             {}, {wanted[0], wanted[1], false});
  return {for_x, for_weight};
}

// The steps of autograd on the CPU for those operators, in its order, to the bit.
Two fill_rms_norm_backward(const Tensor& gradient, const Tensor& x, IntArrayRef shape,
                           const Tensor& rstd, const Optional& weight, std::array<bool, 2> wanted) {
  const Tensor wide = x.to(accumulation_type(x.scalar_type()));
  const Tensor scaled = wide.mul(rstd);
  Tensor for_scaled = gradient.to(scaled.scalar_type());
  Tensor for_weight;
  if (is_defined(weight)) {
    if (wanted[1])
      for_weight = (for_scaled * scaled).sum_to_size(weight->sizes()).to(weight->scalar_type());
    for_scaled = for_scaled * *weight;
  }
  if (!wanted[0]) return {Tensor(), for_weight};
  const Tensor for_rstd = (for_scaled * wide).sum_to_size(rstd.sizes());
  const Tensor for_mean = -0.5 * for_rstd * rstd.pow(3);
  const Tensor for_square = for_mean.expand(x.sizes()) / c10::multiply_integers(shape);
  const Tensor for_x = for_scaled * rstd + for_square * (2.0 * wide.pow(1.0));
  return {for_x.to(x.scalar_type()), for_weight};
}

void add_rms_norm(Table& table) {
  table.rule("_fused_rms_norm", rms_norm);
  table.fill("_fused_rms_norm", fill_rms_norm);
  table.rule("_fused_rms_norm_backward", rms_norm_backward);
  table.fill("_fused_rms_norm_backward", fill_rms_norm_backward);
}

// ---- Group norm ----

// Source: aten/src/ATen/native/group_norm.cpp, aten/src/ATen/native/cuda/group_norm_kernel.cu.
Three group_norm(const Tensor& x, const Optional& weight, const Optional& bias, std::int64_t n,
                 std::int64_t c, std::int64_t pixels, std::int64_t groups, double) {
  const ScalarType type = statistics_type_on_cpu(x, {weight, bias});
  Tensor out = contiguous(x);
  Tensor mean = contiguous({n, groups}, x, type);
  Tensor rstd = contiguous({n, groups}, x, type);
  if (follows_cuda() && pixels > 1 && (is_defined(weight) || is_defined(bias))) {
    const Tensor scale = contiguous({n, c}, x, accumulation_type(x.scalar_type()));
    const Tensor shift = like(scale);
  }
  return {out, mean, rstd};
}

Three group_norm_backward(const Tensor&, const Tensor& x, const Tensor&, const Tensor&,
                          const Optional& weight, std::int64_t n, std::int64_t c, std::int64_t,
                          std::int64_t groups, Wanted wanted) {
  Tensor for_x = wanted[0] ? contiguous(x) : Tensor();
  Tensor for_weight = contiguous_if(wanted[1], weight);
  Tensor for_bias = contiguous_if(wanted[2], weight);
  const ScalarType type = accumulation_type(x.scalar_type());
  const Tensor by_channel[] = {contiguous({n, c}, x, type), contiguous({n, c}, x, type)};
  const Tensor by_group[] = {contiguous({n, groups}, x, type), contiguous({n, groups}, x, type)};
  return {for_x, for_weight, for_bias};
}

void add_group_norm(Table& table) {
  table.rule("native_group_norm", group_norm);
  table.rule("native_group_norm_backward", group_norm_backward);
}

// ---- Weight norm ----

// Norms of half-precision weights are float, also on the CPU. Source:
// aten/src/ATen/native/cuda/WeightNorm.cu, weight_norm_cuda, weight_norm_backward_cuda (2.11.0's
// library compares with Half and BFloat16).
void add_weight_norm(Table& table) {
  table.rule("_weight_norm_interface", [](const Tensor& v, const Tensor& g, std::int64_t) {
    Tensor weight = contiguous(v);
    Tensor norms = at::empty_strided(g.sizes(), g.strides(),
                                     g.options().dtype(accumulation_type(g.scalar_type())));
    return std::tuple(weight, norms);
  });
  table.rule("_weight_norm_interface_backward",
             [](const Tensor&, const Tensor& v, const Tensor& g, const Tensor&, std::int64_t) {
               return std::tuple(contiguous(v), contiguous(g));
             });
}

}  // namespace

void add_normalisation(Table& table) {
  add_weight_norm(table);
  add_layer_norm(table);
  add_rms_norm(table);
  add_group_norm(table);
}

}  // namespace headroom::sim::rules
