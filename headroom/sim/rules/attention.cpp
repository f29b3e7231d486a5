// The allocations of the fused attention kernels: results, tensors saved for backward, temporaries.
// Unknown and left out: flash's accumulators where it splits keys over idle multiprocessors (few
// heads and queries, without dropout), and cuDNN's workspace.
// Source, where no other is named: aten/src/ATen/native/transformers/cuda/attention.cu,
// attention_backward.cu and flash_attn/flash_api.cpp; the results' shapes as
// torch/_meta_registrations.py of 2.11 has them.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>

#include "headroom/gpu/attention_memory.h"
#include "headroom/sim/rules/attention_fill.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

constexpr const char* kInner =
    "it is the inside of scaled_dot_product_attention, whose variants are simulated; call "
    "at::scaled_dot_product_attention, or the _scaled_dot_product_... operator of the kernel";

// ---- Flash ----

FusedResults flash(const Tensor& q, const Tensor& k, const Tensor&, double dropout, bool, bool,
                   std::optional<double>) {
  (void)number_a_random_state();
  Tensor out = at::empty_like(q);
  Tensor logsumexp = contiguous({q.size(0), q.size(1), q.size(2)}, q, at::kFloat);
  Tensor seed = contiguous({2}, q, at::kUInt64);
  Tensor unused = contiguous({}, q, at::kUInt64);
  if (dropout > 0) seed = contiguous({2}, q, at::kUInt64);  // allocated a second time
  return {out, logsumexp, {}, {}, q.size(2), k.size(2), seed, unused, at::empty({0}, q.options())};
}

auto flash_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const Tensor&, const Tensor&, const Tensor&, c10::SymInt,
                    c10::SymInt, double, bool, const Tensor&, const Tensor&,
                    std::optional<double>) {
  const Tensor gradient_by_token = gradient.transpose(1, 2).contiguous();
  const Tensor out_by_token = out.transpose(1, 2).contiguous();
  Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  const std::int64_t heads = q.size(1), rows = q.size(0);
  const gpu::FlashTile tile = gpu::flash_tile(q.size(2), q.size(3));
  const Tensor dots = contiguous({rows, heads, tile.queries}, q, at::kFloat);
  const Tensor dq_sum = contiguous({rows, tile.queries, heads, tile.head_dim}, q, at::kFloat);
  if (heads != k.size(1)) {  // one gradient for each query head, summed over groups
    const Tensor dk_wide = contiguous({k.size(0), k.size(2), heads, k.size(3)}, k);
    const Tensor dv_wide = contiguous({v.size(0), v.size(2), heads, v.size(3)}, v);
  }
  return std::tuple(dq, dk, dv);
}

// ---- Memory-efficient ----

gpu::EfficientCall efficient_call(const Tensor& q, const Tensor& k, const Tensor& v,
                                  double dropout) {
  return {.half = at::isReducedFloatingType(q.scalar_type()),
          .chip = gpu::chip_number(running_profile()),
          .batch = q.size(0),
          .heads = q.size(1),
          .queries = q.size(2),
          .keys = k.size(2),
          .head_dim = q.size(3),
          .value_dim = v.size(3),
          .dropout = dropout > 0,
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

// Shape [batch, heads, tokens, dim], laid out by token.
Tensor by_token(const Tensor& like, std::int64_t dim) {
  return contiguous({like.size(0), like.size(2), like.size(1), dim}, like).transpose(1, 2);
}

auto efficient(const Tensor& q, const Tensor& k, const Tensor& v, const Optional&, bool statistics,
               double dropout, bool, std::optional<double>) {
  const std::int64_t number = number_a_random_state();
  Tensor seed, offset;  // with dropout they are on the host
  if (dropout > 0) {
    const auto note = static_cast<std::int64_t>(packed_note(q, dropout));
    seed = at::scalar_tensor(number, at::TensorOptions(at::kLong).device(at::kCPU));
    offset = at::scalar_tensor(note, at::TensorOptions(at::kLong).device(at::kCPU));
  } else {
    seed = contiguous({}, q, at::kLong);
    offset = contiguous({}, q, at::kLong);
  }
  Tensor out = by_token(q, v.size(3));
  Tensor logsumexp = contiguous(
      {q.size(0), q.size(1), statistics ? gpu::efficient_statistics(q.size(2)) : 0}, q, at::kFloat);
  if (gpu::efficient_accumulates(efficient_call(q, k, v, dropout)))
    const Tensor sums = contiguous({q.size(0), q.size(2), q.size(1), v.size(3)}, q, at::kFloat);
  return std::tuple(out, logsumexp, seed, offset);
}

Tensor mask_gradient(const Tensor& mask) {
  auto sizes = mask.sizes().vec();
  const std::int64_t last = sizes.back();
  sizes.back() = gpu::efficient_mask_row(last);
  return at::empty(sizes, mask.options()).slice(-1, 0, last);
}

auto efficient_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask, const Tensor& out, const Tensor&, const Tensor&,
                        const Tensor&, double dropout, std::array<bool, 4> wanted, bool,
                        std::optional<double>) {
  if (!gradient.defined()) return std::tuple<Tensor, Tensor, Tensor, Tensor>();
  const Tensor ready = gradient.transpose(1, 2).contiguous();
  Tensor dq = by_token(q, q.size(3)), dk = by_token(k, k.size(3)), dv = by_token(v, v.size(3));
  Tensor dmask = mask.defined() && wanted[3] ? mask_gradient(mask) : Tensor();
  const gpu::EfficientCall call = efficient_call(q, k, v, dropout);
  const Tensor delta = gpu::efficient_computes_delta(call)
                           ? contiguous({q.size(0), q.size(1), q.size(2)}, q, at::kFloat)
                           : (ready.to(at::kFloat) * out.transpose(1, 2).to(at::kFloat))
                                 .sum(-1)
                                 .transpose(-2, -1)
                                 .contiguous();
  const Tensor workspace = contiguous({gpu::efficient_workspace(call)}, q, at::kByte);
  return std::tuple(dq, dk, dv, dmask);
}

// ---- cuDNN ----

FusedResults cudnn(const Tensor& q, const Tensor& k, const Tensor& v, const Optional&,
                   bool statistics, double, bool, bool, std::optional<double>) {
  (void)number_a_random_state();
  Tensor seed = contiguous({}, q, at::kLong), offset = contiguous({}, q, at::kLong);
  Tensor out = q.size(3) == v.size(3) ? at::empty_like(q) : by_token(q, v.size(3));
  Tensor logsumexp =
      statistics ? contiguous({q.size(0), q.size(1), q.size(2), 1}, q, at::kFloat) : Tensor();
  return {out, logsumexp, {}, {}, q.size(2), k.size(2), seed, offset, {}};
}

auto cudnn_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                    const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double, bool,
                    std::optional<double>) {
  Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  // The gradient is copied to the output's layout: aten/src/ATen/native/cudnn/MHA.cpp.
  if (gradient.strides() != out.strides()) const Tensor alike = at::empty_like(out);
  return std::tuple(dq, dk, dv);
}

// ---- The CPU's ----

auto cpu_flash(const Tensor& q, const Tensor&, const Tensor&, double, bool, const Optional&,
               std::optional<double>) {
  const ScalarType sums = accumulation_type(q.scalar_type());
  return std::tuple(at::empty_like(q),
                    contiguous({q.size(0), q.size(2), q.size(1)}, q, sums).transpose(1, 2));
}

auto cpu_flash_backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor&, const Tensor&, double, bool, const Optional&,
                        std::optional<double>) {
  return std::tuple(by_token(q, q.size(3)), by_token(k, k.size(3)), by_token(v, v.size(3)));
}

// ---- LibTorch's own attention layer, for inference ----

auto split_and_bias(const Tensor& qkv, const Tensor&, std::int64_t heads) {
  const Tensor all =
      at::empty({3, qkv.size(0), heads, qkv.size(1), qkv.size(2) / 3 / heads}, qkv.options());
  return std::tuple(all.select(0, 0), all.select(0, 1), all.select(0, 2));
}

}  // namespace

void add_attention(Table& table) {
  table.rule("_scaled_dot_product_flash_attention", flash);
  table.rule("_scaled_dot_product_flash_attention_backward", flash_backward);
  table.rule("_scaled_dot_product_efficient_attention", efficient);
  table.rule("_scaled_dot_product_efficient_attention_backward", efficient_backward);
  table.rule("_scaled_dot_product_cudnn_attention", cudnn);
  table.rule("_scaled_dot_product_cudnn_attention_backward", cudnn_backward);
  table.rule("_scaled_dot_product_flash_attention_for_cpu", cpu_flash);
  table.rule("_scaled_dot_product_flash_attention_for_cpu_backward", cpu_flash_backward);
  table.rule("_transform_bias_rescale_qkv", split_and_bias);
  table.contiguous_as(0, {"_masked_softmax"});
  table.like(0, {"_masked_softmax_backward"});
  // The last step of the math path's softmax, in place: aten::_safe_softmax.
  table.rule("where.self_out",
             [](const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) -> Tensor& {
               const auto sizes =
                   at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()));
               if (out.sizes() != IntArrayRef(sizes)) out.resize_(sizes);
               return out;
             });
  add_attention_fills(table);
  for (const char* inner :
       {"_flash_attention_forward", "_flash_attention_forward.quantized",
        "_flash_attention_backward", "_efficient_attention_forward",
        "_efficient_attention_backward", "_cudnn_attention_forward", "_cudnn_attention_backward",
        "_scaled_dot_product_flash_attention.quantized",
        "_scaled_dot_product_fused_attention_overrideable", "_fill_mem_eff_dropout_mask_",
        "_triton_scaled_dot_attention", "_triton_multi_head_attention"})
    table.refuse(inner, kInner);
  for (const char* layer : {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"})
    table.refuse(
        layer,
        "it is the short cut that Python's modules take in inference, and what it needs on "
        "CUDA is not known; torch::nn's modules do the same in single steps (in Python: "
        "torch.backends.mha.set_fastpath_enabled(False))");
}

}  // namespace headroom::sim::rules
