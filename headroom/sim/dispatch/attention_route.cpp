#include "headroom/sim/dispatch/registration.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "headroom/gpu/attention_memory.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/rules/attention_fill.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using gpu::AttentionKernel;
using sdp::sdp_params;
using sdp::SDPBackend;

// ---- The calls each kernel takes: by the chip's profile, and by LibTorch's own conditions ----
// Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, can_use_..._attention.

bool takes_type(const AttentionKernel& kernel, const Tensor& q) {
  if (kernel.dtypes.empty()) return true;
  const auto takes = [&](const char* type) {
    return std::find(kernel.dtypes.begin(), kernel.dtypes.end(), type) != kernel.dtypes.end();
  };
  if (q.scalar_type() == at::kHalf) return takes("float16");
  if (q.scalar_type() == at::kBFloat16) return takes("bfloat16");
  return q.scalar_type() == at::kFloat && takes("float32");
}

bool dims_up_to(const AttentionKernel& kernel, std::int64_t dim) {
  return !kernel.max_head_dim || dim <= *kernel.max_head_dim;
}

// Chips 8.6 to 8.9 and 12.x have no backward kernel for head sizes from 193 to 224, nor for larger
// ones with dropout.
bool trains(const sdp_params& p, int chip) {
  const bool small = (chip >= 86 && chip <= 89) || chip >= 120;
  const std::int64_t dim = p.query.size(-1);
  return !small || !sdp::input_requires_grad(p) || dim <= 192 || (p.dropout == 0 && dim > 224);
}

bool flash_takes(const AttentionKernel& kernel, const sdp_params& p, int chip) {
  const std::int64_t dim = p.query.size(-1);
  return at::globalContext().userEnabledFlashSDP() && !p.attn_mask && dim == p.key.size(-1) &&
         dim == p.value.size(-1) && dims_up_to(kernel, dim) && trains(p, chip) &&
         (!p.is_causal || p.query.size(-2) == p.key.size(-2)) &&
         sdp::check_batch_size_and_num_heads_dense<true>(p, false) &&
         sdp::check_last_dim_stride_equals_1_dense<true>(p, false);
}

// The number of elements that a row must be a multiple of, for the matrix units.
std::int64_t alignment(const Tensor& q, int chip) {
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  const bool matrix_units = chip >= 80 || (chip >= 70 && half);
  return matrix_units ? (half ? 8 : 4) : 1;
}

bool efficient_takes(const AttentionKernel& kernel, const sdp_params& p, int chip) {
  const std::int64_t dim = p.query.size(-1), by = alignment(p.query, chip);
  return at::globalContext().userEnabledMemEfficientSDP() && dim == p.key.size(-1) && dim > 0 &&
         p.value.size(-1) > 0 && dim % by == 0 && p.value.size(-1) % by == 0 &&
         dims_up_to(kernel, dim) && sdp::check_last_dim_stride_equals_1_dense<false>(p, false) &&
         sdp::check_batch_size_and_num_heads_dense<false>(p, false);
}

bool cudnn_takes(const AttentionKernel& kernel, const sdp_params& p) {
  const auto& context = at::globalContext();
  const std::int64_t dim = p.query.size(-1), value_dim = p.value.size(-1);
  return context.userEnabledCuDNNSDP() &&
         (!context.deterministicAlgorithms() || context.deterministicAlgorithmsWarnOnly()) &&
         p.dropout * 16 == std::floor(p.dropout * 16) && dims_up_to(kernel, dim) &&
         dims_up_to(kernel, value_dim) && dim % 8 == 0 && value_dim % 8 == 0 &&
         p.key.size(2) != 1 && (p.dropout == 0 || p.query.size(2) != 1) &&
         sdp::check_attn_mask_shape(p, false) &&
         sdp::check_last_dim_stride_equals_1_dense<true>(p, false) &&
         sdp::check_batch_size_and_num_heads_dense<true, false>(p, false);
}

SDPBackend choose_as_cuda(const sdp_params& p, const gpu::DeviceProfile& profile, int chip) {
  const bool shaped =
      sdp::check_tensor_shapes(p, false) && sdp::check_nonzero_sequence_lengths_dense(p, false);
  for (const AttentionKernel& kernel : profile.attention) {
    if (!shaped || !takes_type(kernel, p.query)) continue;
    if (kernel.name == "flash" && flash_takes(kernel, p, chip)) return SDPBackend::flash_attention;
    if (kernel.name == "memory_efficient" && efficient_takes(kernel, p, chip))
      return SDPBackend::efficient_attention;
    if (kernel.name == "cudnn" && cudnn_takes(kernel, p)) return SDPBackend::cudnn_attention;
  }
  TORCH_CHECK(at::globalContext().userEnabledMathSDP(),
              "No available kernel. Aborting execution. (scaled_dot_product_attention on sim: the "
              "kernels that are not switched off do not take this call on the card's chip)");
  return SDPBackend::math;
}

// The choice of the CPU's own function, which looks only at sizes and strides.
std::int64_t choose_as_cpu(const Tensor& q, const Tensor& k, const Tensor& v,
                           const std::optional<Tensor>& mask, double dropout, bool causal,
                           std::optional<double> scale, bool grouped) {
  using Choice =
      std::int64_t(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                   double, bool, std::optional<double>, bool);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_fused_sdp_choice", "").typed<Choice>();
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), q, k, v, mask, dropout, causal,
                       scale, grouped);
}

std::int64_t choose(const Tensor& q, const Tensor& k, const Tensor& v,
                    const std::optional<Tensor>& mask, double dropout, bool causal,
                    std::optional<double> scale, bool grouped) {
  Card& card = card_at(q.device().index());
  if (card.rules() == Rules::cpu)
    return choose_as_cpu(q, k, v, mask, dropout, causal, scale, grouped);
  const RunningScope scope(&card, running.planning);
  const gpu::DeviceProfile* profile = card.options().profile;
  if (profile == nullptr) profile = gpu::find_profile("ampere_dc");
  const sdp_params params{q, k, v, mask, dropout, causal, grouped};
  return static_cast<std::int64_t>(
      choose_as_cuda(params, *profile, gpu::chip_number(card.options().profile)));
}

// ---- The function itself ----

Tensor padded(const Tensor& x) {
  const std::int64_t over = x.size(-1) % 8;
  return over == 0 ? x : at::pad(x, {0, 8 - over});
}

// As LibTorch does for CUDA, and for no other device.
// Source: aten/src/ATen/native/transformers/attention.cpp, scaled_dot_product_attention.
Tensor flash(const Tensor& q, const Tensor& k, const Tensor& v, double dropout, bool causal,
             std::optional<double> scale) {
  const double by = sdp::calculate_scale(q, scale).expect_float();
  const Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention(
      padded(q), padded(k), padded(v), dropout, causal, false, by));
  return out.size(-1) == q.size(-1) ? out : out.slice(-1, 0, q.size(-1));
}

// Source: aten/src/ATen/native/transformers/sdp_utils_cpp.cpp, use_flash_attention_cpp.
bool cpus_fused_kernel_takes(const sdp_params& p) {
  return p.dropout == 0 && sdp::check_tensor_shapes(p, false) &&
         sdp::check_batch_size_and_num_heads_dense<true>(p, false) &&
         sdp::check_attn_mask_shape(p, false) && p.query.size(-1) == p.key.size(-1) &&
         p.query.size(-1) == p.value.size(-1) &&
         sdp::check_nonzero_sequence_lengths_dense(p, false) &&
         sdp::check_last_dim_stride_equals_1_dense<false>(p, false);
}

// With all kernels of the CPU switched off, which does not matter to a card with its own kernel,
// decides as if they were on.
bool cpu_goes_by_math(const sdp_params& p, std::optional<double> scale) {
  const auto& context = at::globalContext();
  const bool fused = context.userEnabledFlashSDP(), plain = context.userEnabledMathSDP();
  if (!plain && (!fused || !cpus_fused_kernel_takes(p))) return !cpus_fused_kernel_takes(p);
  return choose_as_cpu(p.query, p.key, p.value, p.attn_mask, p.dropout, p.is_causal, scale,
                       p.enable_gqa) == static_cast<std::int64_t>(SDPBackend::math);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const std::optional<Tensor>& mask, double dropout, bool causal,
                 std::optional<double> scale, bool grouped) {
  const bool dense = q.dim() == 4 && k.dim() == 4 && v.dim() == 4;
  const rules::AsOnCpu note{
      .known = dense,
      .by_math = dense && cpu_goes_by_math({q, k, v, mask, dropout, causal, grouped}, scale),
      .head_dim = q.dim() > 0 ? q.size(-1) : 0};
  const rules::AsOnCpuScope scope(note);
  const bool valid = dense && q.scalar_type() == k.scalar_type() &&
                     q.scalar_type() == v.scalar_type() && q.device() == k.device() &&
                     q.device() == v.device() && !mask;
  if (valid && card_at(q.device().index()).rules() == Rules::cuda &&
      choose(q, k, v, mask, dropout, causal, scale, grouped) ==
          static_cast<std::int64_t>(SDPBackend::flash_attention))
    return flash(q, k, v, dropout, causal, scale);
  return at::native::scaled_dot_product_attention(q, k, v, mask, dropout, causal, scale, grouped);
}

}  // namespace

void register_attention_route(torch::Library& aten) {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose);
  aten.impl("_fused_sdp_choice", &choose);
  aten.impl("scaled_dot_product_attention", &attention);
  library(c10::DispatchKey::AutogradPrivateUse1).impl("scaled_dot_product_attention", &attention);
}

}  // namespace headroom::sim::detail
