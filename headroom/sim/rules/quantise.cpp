#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

using Int = std::int64_t;

// The gradients of scale and zero point are sums over vectors as large as the input.
// Source: aten/src/ATen/native/quantized/FakeQuantPerTensorAffine.cpp, ...PerChannelAffine.cpp.
auto learnable_backward(const Tensor& x, const Tensor& scale, IntArrayRef sizes) {
  Tensor gradient = like(x);
  const Tensor of_scales = like(x);
  const Tensor of_zero_points = like(x);
  return std::tuple(gradient, contiguous(sizes, scale, x.scalar_type()),
                    contiguous(sizes, scale, x.scalar_type()));
}

void add_fake(Table& table) {
  const auto with_mask = [](Table::Arguments all) {
    const Tensor& x = all[0].toTensor();
    return std::vector{like(x), like(x, at::kBool)};
  };
  table.rules_of({"fake_quantize_per_tensor_affine_cachemask",
                  "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
                  "fake_quantize_per_channel_affine_cachemask", "_fused_moving_avg_obs_fq_helper"},
                 with_mask);
  // These make masks that they do not return.
  // Source: aten/src/ATen/native/quantized/FakeQuantPerTensorAffine.cpp, ...PerChannelAffine.cpp:
  // both call the operator with a mask (so do 2.11.0's libraries).
  table.rules_of(
      {"_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine"},
      [=](Table::Arguments all) { return std::vector{with_mask(all)[0]}; });
  table.rule("_fake_quantize_learnable_per_tensor_affine_backward",
             [](const Tensor&, const Tensor& x, const Tensor& scale, const Tensor&, Int, Int,
                double) { return learnable_backward(x, scale, {1}); });
  table.rule("_fake_quantize_learnable_per_channel_affine_backward",
             [](const Tensor&, const Tensor& x, const Tensor& scale, const Tensor&, Int axis, Int,
                Int, double) { return learnable_backward(x, scale, {x.size(axis)}); });
}

}  // namespace

void add_quantise(Table& table) {
  add_fake(table);
  table.rule("_weight_int8pack_mm", [](const Tensor& x, const Tensor& weight, const Tensor&) {
    return contiguous({x.size(0), weight.size(0)}, x);
  });
  for (const char* name :
       {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_channel",
        "quantize_per_tensor_dynamic", "_make_per_tensor_quantized_tensor",
        "_make_per_channel_quantized_tensor", "dequantize.self"})
    table.refuse(name,
                 "quantised tensors are not simulated; use fake quantisation "
                 "(fake_quantize_per_tensor_affine), or int8 tensors with scales of their own");
}

}  // namespace headroom::sim::rules
